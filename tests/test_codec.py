"""Records to JSON and arrays and back, and what is said of what was changed on the way."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from feasibly._codec import digest, pack, record, unpack
from feasibly._fields import CodecError


@record("test-pair", shapes={"left": "n", "right": "n"})
class Pair(NamedTuple):
    left: Any
    right: Any


@record(
    "test-thing",
    shapes={"values": "rows columns", "pairs.*.left": "columns", "pairs.0.right": "columns", "only": "rows"},
    indices={"places": "columns"},
)
@dataclass(frozen=True, eq=False)
class Thing:
    values: NDArray[np.float64]
    places: NDArray[np.int64]
    pairs: tuple[Pair, ...]
    weight: float
    count: int = 3
    name: str = ""
    flag: bool = False
    only: NDArray[np.float64] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    words: NDArray[np.bytes_] | None = None


def thing(**changes: Any) -> Thing:
    usual: dict[str, Any] = {
        "values": np.arange(6.0).reshape(2, 3),
        "places": np.array([0, 2]),
        "pairs": (Pair(jnp.ones(3), np.zeros(3, dtype=np.float32)),),
        "weight": np.float64(np.inf),
        "notes": {"a": [1, 2.5, None, {"b": -np.inf}], "c": np.array(2.0)},
        "words": np.array([b"one", b"three"]),
    }
    return Thing(**(usual | changes))


def through_json(value: Any) -> tuple[Any, dict[str, Any]]:
    plain, arrays = pack(value, "part")
    return json.loads(json.dumps(plain, allow_nan=False)), arrays


def test_everything_comes_back() -> None:
    made = thing()
    again = unpack(*through_json(made), Thing)
    np.testing.assert_array_equal(again.values, made.values)
    np.testing.assert_array_equal(again.pairs[0].left, np.ones(3))
    assert again.pairs[0].right.dtype == np.float32
    assert (again.weight, again.count, again.flag, again.only) == (np.inf, 3, False, None)
    assert again.notes["a"] == (1, 2.5, None, {"b": -np.inf})
    assert again.notes["c"].shape == ()
    assert again.words is not None
    assert again.words.tolist() == [b"one", b"three"]
    assert digest(again) == digest(made)
    assert digest(thing(count=4)) != digest(made)


def test_a_flipped_bit_in_any_array_is_seen() -> None:
    plain, arrays = through_json(thing())
    for name, values in arrays.items():
        raw = bytearray(values.tobytes())
        raw[len(raw) // 2] ^= 4
        spoilt = np.frombuffer(bytes(raw), dtype=values.dtype).reshape(values.shape)
        with pytest.raises(CodecError, match=f"array '{name}' has changed"):
            unpack(plain, arrays | {name: spoilt}, Thing)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"places": np.array([0, 3])}, "places does not count columns"),
        ({"places": np.array([-1])}, "places does not count columns"),
        ({"places": np.array([0.0])}, "places is not what"),
        ({"values": np.zeros(3)}, "values is 3, not rows x columns"),
        ({"values": np.zeros((2, 3), dtype=int)}, "values is not what"),
        ({"pairs": (Pair(np.zeros(2), np.zeros(2)),)}, "pairs.0.left is 2, not 3"),
        ({"pairs": (Pair(np.zeros(2), np.zeros(3)),)}, "pairs.0.right is 3, not 2"),
        ({"pairs": (np.zeros(3),)}, "pairs is not what"),
        ({"only": np.zeros(3)}, "only is 3, not 2"),
        ({"count": 2.0}, "count is not what"),
        ({"count": True}, "count is not what"),
        ({"weight": "heavy"}, "weight is not what"),
        ({"name": None}, "name is not what"),
        ({"notes": (1,)}, "notes is not what"),
    ],
)
def test_wrong_types_shapes_and_indices_are_named(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        unpack(*through_json(thing(**changes)), Thing)


def test_wrong_descriptions_are_named() -> None:
    plain, arrays = through_json(thing())

    def told(**changes: Any) -> Any:
        return copy.deepcopy(plain) | changes

    for spoilt, sentence in (
        (told(extra=1), "field 'extra'"),
        (told(**{"is": "spell"}), "kind 'spell'"),
        (told(**{"is": ["spell"]}), "does not know"),
        (told(values={"array": "part.nowhere"}), "'part.nowhere' is missing"),
        (told(values={"array": 3}), "array 3 is missing"),
        (told(weight={"float": "many"}), "not a number"),
        (told(words=plain["words"] | {"width": 7}), "words of 7 bytes"),
        ({key: value for key, value in plain.items() if key != "pairs"}, "incomplete"),
        ([1], "a Thing was expected"),
        (None, "a Thing was expected"),
    ):
        with pytest.raises(CodecError, match=sentence):
            unpack(spoilt, arrays, Thing)
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(CodecError, match="levels deep"):
        unpack(deep, {})


def test_what_cannot_be_stored_is_refused_when_it_is_packed() -> None:
    for bad, sentence in (
        (object(), "no registered record"),
        ({"is": 1}, "keys must be words"),
        ({1: 1}, "keys must be words"),
        (np.array([None]), "arrays of object"),
    ):
        with pytest.raises(CodecError, match=sentence):
            pack(bad)


def test_known_sizes_bind_the_outermost_record() -> None:
    plain, arrays = through_json(thing())
    assert unpack(plain, arrays, Thing, sizes={"columns": 3}).count == 3
    with pytest.raises(CodecError, match="values is 2 x 3, not 2 x 4"):
        unpack(plain, arrays, Thing, sizes={"columns": 4})


def test_fields_that_were_added_do_not_count_in_a_digest() -> None:
    @record("test-grown")
    @dataclass(frozen=True)
    class Grown:
        count: int = 3

    before = digest(Grown(), (Grown(4),))

    @record("test-grown", added=("weight",))
    @dataclass(frozen=True)
    class Grown:  # type: ignore[no-redef]
        count: int = 3
        weight: float = 1.0

    assert digest(Grown(), (Grown(4),)) == before
    assert digest(Grown(), (Grown(4, weight=2.0),)) == before
    assert digest(Grown(), (Grown(5),)) != before
    assert pack(Grown()).plain == {"is": "test-grown", "count": 3, "weight": 1.0}
    assert unpack({"is": "test-grown", "count": 3}, {}) == Grown()


def test_a_renamed_field_keeps_its_name_in_files_and_digests() -> None:
    @record("test-named")
    @dataclass(frozen=True)
    class Named:
        weight: float
        count: int = 1

    before, known = pack(Named(2.0)).plain, digest(Named(2.0))

    @record("test-named", stored={"penalty": "weight"})
    @dataclass(frozen=True)
    class Named:  # type: ignore[no-redef]
        penalty: float
        count: int = 1

    assert (pack(Named(2.0)).plain, digest(Named(2.0))) == (before, known)
    assert unpack(before, {}, Named) == Named(penalty=2.0)
    with pytest.raises(CodecError, match="'penalty', which this version does not know"):
        unpack({"is": "test-named", "penalty": 2.0}, {})
