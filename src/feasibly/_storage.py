"""A proxy on disk: `proxy.json` for what can be read, `arrays.safetensors` for what is large. No code in either.

Everything goes through one codec, and nothing is read that was not written: `proxy.json` ends with a checksum of
itself, holds one of the other file, and one of every array in it. Proxies that belong to this one, those of a
certificate's folds and the one that makes proofs, are folders in its folder; it holds a checksum of each one's own
`proxy.json` as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly import _codec
from feasibly._codec import pack, unpack
from feasibly._fields import CodecError
from feasibly.answer.calibration import Calibration
from feasibly.answer.range import Leverage
from feasibly.answer.settings import METHOD_VERSION
from feasibly.bound.relaxation import FORM as RELAXATION
from feasibly.model.belief import Model
from feasibly.problem.core import Problem
from feasibly.problem.errors import CertificateWarning, FeasiblyError, ProofWarning
from feasibly.problem.families import describe, rebuild

if TYPE_CHECKING:
    from feasibly.certificate import Certificate
    from feasibly.proof import Prover
    from feasibly.proxy import Proxy

FORMAT, OLDEST = 3, 2
TEXT, ARRAYS, FOLDS = "proxy.json", "arrays.safetensors", "folds"
PROOF = "proof"

MOST = 64 * 2**20
"""Bytes that `proxy.json` may have; the largest ones known have a hundredth of it."""

_UNSEALED = "0" * 64
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n}\n\Z')


class ModelFileError(FeasiblyError):
    """A folder that is not a proxy this version can read."""


# ---- writing -----------------------------------------------------------------------------------------------


def save_proxy(proxy: Proxy, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write to a folder beside `path` and move it there, so that a reader never sees half of it."""
    target = Path(path)
    if target.exists() and not (overwrite and is_proxy(target)):
        what = (
            "holds a proxy; pass overwrite=True to replace it"
            if is_proxy(target)
            else "exists and is no proxy"
        )
        raise FeasiblyError(f"{target} {what}")
    text, arrays = _described(proxy)
    scratch: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        parts = _write_parts(scratch, proxy)
        _write(scratch, text | {"parts": {name: _file_digest(scratch / name) for name in parts}}, arrays)
        scratch.chmod(0o755)
        _move(scratch, target)
    except OSError as error:
        raise FeasiblyError(f"the proxy could not be written to {target}: {error.strerror}") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _write_parts(folder: Path, proxy: Proxy) -> list[str]:
    """Write the proxies that belong to this one; the files whose checksums it is to hold."""
    written = []
    for i, fold in enumerate(() if proxy.certificate is None else proxy.certificate.folds):
        save_proxy(fold, folder / FOLDS / str(i))
        written.append(f"{FOLDS}/{i}/{TEXT}")
    if proxy._prover is not None:
        save_proxy(proxy._prover.relaxed, folder / PROOF)
        written.append(f"{PROOF}/{TEXT}")
    return written


def _described(proxy: Proxy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What goes into the two files."""
    parts = {
        "model": proxy.model, "record": proxy.record, "calibration": proxy.calibration, "leverage": proxy.leverage,
        "certificate": proxy.certificate and proxy.certificate.with_folds(()), "keys": proxy.keys, "box": proxy.box,
        "loose": proxy._prover and proxy._prover.loose, "relaxation": proxy._prover and RELAXATION,
    }  # fmt: skip
    text: dict[str, Any] = {
        "format": FORMAT,
        "problem": {"name": proxy.problem.name, "fingerprint": proxy.problem.fingerprint},
    }
    described = describe(proxy.problem)
    if described is not None:
        text["problem"]["description"] = described.plain
    arrays: dict[str, NDArray[Any]] = {} if described is None else described.arrays
    for name, value in parts.items():
        if value is not None:
            text[name], own = pack(value, name)
            arrays |= own
    return text, arrays


def _write(folder: Path, text: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    from safetensors.numpy import save_file

    save_file(dict(arrays), folder / ARRAYS)
    whole = text | {"files": {ARRAYS: _file_digest(folder / ARRAYS)}, "sha256": _UNSEALED}
    (folder / TEXT).write_bytes(_sealed((json.dumps(whole, indent=1, allow_nan=False) + "\n").encode()))


def _sealed(text: bytes) -> bytes:
    """The text with its own checksum in the place that was kept for it."""
    return text.replace(_UNSEALED.encode(), hashlib.sha256(text).hexdigest().encode())


def _move(scratch: Path, target: Path) -> None:
    if not target.exists():
        scratch.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    try:
        target.rename(old / "proxy")
        try:
            scratch.rename(target)
        except BaseException:
            (old / "proxy").rename(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def is_proxy(path: Path) -> bool:
    """Whether a folder looks like a saved proxy."""
    return (path / TEXT).is_file()


def digest(model: Model, calibration: Calibration | None) -> str:
    """A hash of a model, the constants of its conditioning and the version of the method."""
    return _codec.digest(model, calibration, METHOD_VERSION)


# ---- reading -----------------------------------------------------------------------------------------------


def load_proxy(path: str | os.PathLike[str], problem: Problem | None) -> Proxy:
    """Read what `save_proxy` wrote."""
    from feasibly.proxy import Proxy, TrainingRecord

    folder = Path(path)
    text = _read_text(folder)
    arrays = _read_arrays(folder, text)
    _know_records()
    try:
        parts = _checked_parts(folder, text)
        stated = text["problem"]
        if problem is None:
            problem = _reopened(text, arrays, folder)
        if problem.fingerprint != stated["fingerprint"]:
            raise ModelFileError(
                f"{folder} was trained for another problem ({stated['name']}) than {problem.name}: their data differ"
            )
        sizes = {
            "inputs": problem.n_inputs, "outputs": problem.n_outputs, "equalities": problem.n_equalities,
            "inequalities": problem.n_inequalities,
        }  # fmt: skip

        def part(name: str, kind: Any = None) -> Any:
            return unpack(text[name], arrays, kind, sizes=sizes)

        def optional(name: str, kind: Any = None) -> Any:
            return part(name, kind) if name in text else None

        made = _in_force(optional("certificate"), folder)
        proxy = Proxy(
            problem,
            part("model", Model),
            part("record", TrainingRecord),
            keys=part("keys"),
            calibration=optional("calibration", Calibration),
            box=optional("box", tuple),
            leverage=optional("leverage", Leverage),
            certificate=None if made is None else made.with_folds(_folds(folder, problem, made)),
        )
        if f"{PROOF}/{TEXT}" in parts:
            proxy._prover = _prover(folder / PROOF, proxy, optional("loose"), optional("relaxation"))
        return proxy
    except CodecError as error:
        raise ModelFileError(
            f"{folder} cannot be used: {error}; train it again, or fetch another copy"
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{folder} is damaged: {type(error).__name__}: {error}; train it again, or fetch another copy"
        ) from error


def _in_force(made: Certificate | None, folder: Path) -> Certificate | None:
    """The certificate, unless the method has changed since: then it is about answers that nobody gets any more."""
    if made is None or made.version == METHOD_VERSION:
        return made
    warnings.warn(
        f"{folder}: opened without its certificate, which was made for answers of another version of the method; "
        "certify it again",
        CertificateWarning,
        stacklevel=4,
    )
    return None


def _know_records() -> None:
    """Import every class that a model may be made of, so that the codec knows it."""
    from feasibly import certificate  # noqa: F401
    from feasibly.model import deterministic, kernel, linear, posterior, response  # noqa: F401


def _folds(folder: Path, problem: Problem, made: Certificate) -> tuple[Proxy, ...]:
    """The proxies of the certificate's folds, as many as its intervals are made of."""
    crossed = [each.cross for each in made.answers.values() if each.cross is not None]
    wanted = len(crossed[0].floor) if crossed else 0
    missing = [k for k in range(wanted) if not is_proxy(folder / FOLDS / str(k))]
    if missing:
        raise ModelFileError(
            f"{folder / FOLDS / str(missing[0])} is missing: the certificate rests on {wanted} such models; "
            "fetch another copy, or certify again"
        )
    return tuple(load_proxy(folder / FOLDS / str(k), problem) for k in range(wanted))


def _prover(folder: Path, proxy: Proxy, loose: Any, form: Any) -> Prover | None:
    """What makes proofs; that its pairs are the right ones shows in the fingerprint of the problem they make.

    What learnt from pairs off their cones in an earlier form of the relaxation knows nothing of this one: it is left
    behind with a warning, and made again when a proof is asked for.
    """
    from feasibly.proof import Prover

    try:
        if loose is None:  # format 2
            loose = json.loads((folder / "pairs.json").read_text(encoding="utf-8"))["loose"]
        loose = np.array(loose, dtype=np.int64)
        if len(loose) and form != RELAXATION:
            warnings.warn(
                f"{folder.parent}: opened without what makes its proofs, which was learnt by another version of the "
                "method; the next proof learns it anew, and saving the model then keeps it",
                ProofWarning,
                stacklevel=4,
            )
            return None
        cone, relaxed = Prover.problem(proxy, loose)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelFileError(
            f"{folder}: its pairs of buses cannot be read; fetch another copy, or train again"
        ) from error
    return Prover(cone, load_proxy(folder, relaxed), loose)


def _read_text(folder: Path) -> dict[str, Any]:
    """The JSON of a folder, its checksum tried."""
    if not folder.exists():
        raise ModelFileError(f"there is no model at {folder}")
    if not is_proxy(folder):
        raise ModelFileError(f"{folder} is not a saved proxy (it has no {TEXT})")
    file = folder / TEXT
    try:
        if file.stat().st_size > MOST:
            raise ModelFileError(f"{file} is larger than any proxy's description; the file is damaged")
        raw = file.read_bytes()
        text = json.loads(raw)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{file} cannot be read; the file is damaged") from error
    except RecursionError as error:
        raise ModelFileError(
            f"{file} is nested too deeply for a proxy's description; the file is damaged"
        ) from error
    version = text.get("format") if isinstance(text, dict) else None
    if not isinstance(version, int):
        raise ModelFileError(f"{file} is not a proxy's description; the file is damaged, or not one of ours")
    if version > FORMAT:
        raise ModelFileError(
            f"{folder} was saved by a newer version of feasibly (format {version}, this one reads {FORMAT}); update it"
        )
    if version < OLDEST:
        raise ModelFileError(
            f"{folder} was saved by an earlier version of feasibly (format {version}, this one reads {OLDEST} "
            f"and {FORMAT}); train it again from its labels, which this version still reads: "
            "feasibly train DATA --out MODEL"
        )
    found = _SEAL.search(raw)
    if found is None or _sealed(raw.replace(found[1], _UNSEALED.encode())) != raw:
        raise ModelFileError(
            f"{file} has changed since it was written; the file is damaged: fetch another copy, or train again"
        )
    return dict(text)


def _read_arrays(folder: Path, text: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    file = folder / ARRAYS
    try:
        arrays = dict(load_file(file))
        same = _file_digest(file) == text.get("files", {}).get(ARRAYS)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{file} is missing or truncated; save the proxy again") from error
    if not same:
        raise ModelFileError(f"{file} has changed since it was written; fetch another copy, or train again")
    return arrays


def _checked_parts(folder: Path, text: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of proxies that belong to this one, their checksums tried."""
    parts = text.get("parts")
    if parts is None:  # saved before they had checksums here
        return (f"{PROOF}/{TEXT}",) if (folder / PROOF).is_dir() else ()
    for name, sealed in parts.items():
        file = folder / name
        try:
            same = _file_digest(file) == sealed
        except OSError as error:
            raise ModelFileError(
                f"{file} is missing or cannot be read; fetch another copy, or train and certify again"
            ) from error
        if not same:
            raise ModelFileError(
                f"{file} is not the one that was saved with this model; fetch another copy, or train and certify again"
            )
    return tuple(parts)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reopened(text: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], folder: Path) -> Problem:
    stated = text["problem"]
    if "description" not in stated:
        raise ModelFileError(
            f"{folder} is a proxy for a problem of your own ({stated['name']}); pass it: Proxy.load(path, problem=...)"
        )
    before: Any = "grid" in text and unpack(text["grid"], arrays)  # format 2
    return rebuild(stated["description"], before or arrays)
