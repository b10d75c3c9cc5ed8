"""Writing a proxy for another runtime, with what a reader of the file has to know beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from feasibly._files import plain, write_whole
from feasibly._version import __version__
from feasibly.answer.belief import mean_function
from feasibly.answer.ladder import TOLERANCE
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, MissingExtraError
from feasibly.problem.families import grid_of
from feasibly.problem.sampling import sample
from feasibly.proxy import Proxy
from feasibly.runtimes.conditioned import conditioned_function, measure_function

Array = NDArray[np.float64]

FORMATS = {".stablehlo": ("conditioned", "mean"), ".onnx": ("mean",)}
"""Which answers a format carries, the default first."""

CLOSE = {".stablehlo": 1e-9, ".onnx": 1e-6}
"""How far what a file answers may be from what the same program answers here, as a share of one plus the answer."""

_SINGLE = 1e-5
"""The same for networks, which compute in single precision inside."""

_ROWS = 16


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    facts: Path
    """The JSON file beside it."""
    answer: str
    difference: float
    """The largest difference from the proxy itself on drawn inputs, as a share of one plus the answer."""


def export(
    proxy: Proxy, path: str | os.PathLike[str], answer: str | None = None, *, overwrite: bool = False
) -> Exported:
    """Write a proxy for another runtime: `.stablehlo` (JAX alone reads it) or `.onnx` (ONNX Runtime and others).

    The program takes `x` (float64, any number of rows) and gives `y`, `objective`, `max_equality` and `max_inequality`.
    What was written is read back and compared before it is kept; names, units and bounds go to a JSON file beside it.

    Args:
        proxy: what to export.
        path: where to; its ending says which format.
        answer: `conditioned` (StableHLO's default: answers that obey the constraints) or `mean` (ONNX carries it
            alone).
        overwrite: whether files that are there may be replaced.

    Raises:
        FeasiblyError: an ending or an answer that there is none of, files in the way, or a file that would not answer
            as the proxy does.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise FeasiblyError(f"{target.name} should end in .stablehlo or .onnx, which says what to write")
    chosen = FORMATS[target.suffix][0] if answer is None else answer
    if chosen not in FORMATS[".stablehlo"]:
        raise FeasiblyError(f"{chosen} answers cannot be exported; choose conditioned or mean")
    if chosen not in FORMATS[target.suffix]:
        raise FeasiblyError(
            "ONNX carries mean answers alone: the converter has no form for the steps of conditioned ones; "
            "export to .stablehlo"
        )
    facts = target.with_name(target.name + ".json")
    for file in (target, facts):
        if file.exists() and not overwrite:
            raise FeasiblyError(f"{file} is there already; choose another name or allow overwriting")
    if not target.parent.is_dir():
        raise FeasiblyError(f"there is no folder {target.parent}")
    with double():
        if target.suffix == ".onnx":
            blob, run = _onnx(proxy)
        else:
            blob, run = _stablehlo(_program(proxy, chosen, frozen=False), proxy.problem.n_inputs)
        difference = _compare(proxy, chosen, run, target.suffix)
    known = describe(proxy, chosen, target.suffix.removeprefix("."), difference)
    write_whole(target, blob)
    write_whole(facts, json.dumps(known, indent=1) + "\n")
    return Exported(target, facts, chosen, difference)


def _program(proxy: Proxy, answer: str, *, frozen: bool) -> Callable[[Any], Any]:
    if answer == "conditioned":
        return conditioned_function(proxy)
    mean = mean_function(proxy.model, frozen=frozen)
    if frozen:
        return mean
    measured = measure_function(proxy.problem)

    def answered(x: Any) -> dict[str, Any]:
        y = mean(x)
        return {"y": y, **measured(x, y)}

    return answered


def _stablehlo(program: Callable[[Any], Any], width: int) -> tuple[bytes, Callable[[Array], Array]]:
    from jax import export as exporting

    shape = exporting.symbolic_shape(f"rows, {width}")
    made = exporting.export(jax.jit(program))(jax.ShapeDtypeStruct(shape, np.float64))
    blob = bytes(made.serialize())
    read = exporting.deserialize(bytearray(blob))
    return blob, lambda x: np.asarray(read.call(x)["y"])


def _onnx(proxy: Proxy) -> tuple[bytes, Callable[[Array], Array]]:
    try:
        import onnxruntime
        from jax2onnx import to_onnx
    except ImportError:
        raise MissingExtraError("jax2onnx and onnxruntime", "export", "an ONNX file") from None
    from feasibly.runtimes._onnx import prune

    made = to_onnx(
        _program(proxy, "mean", frozen=True),
        [("rows", proxy.problem.n_inputs)],
        enable_double_precision=True,
        model_name=proxy.problem.name,
        input_names=["x"],
        output_names=["y"],
    )
    blob = bytes(prune(made).SerializeToString())
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    return blob, lambda x: np.asarray(session.run(["y"], {"x": x})[0])


def _compare(proxy: Proxy, answer: str, run: Callable[[Array], Array], ending: str) -> float:
    """The largest difference, of many rows and of one, from what is computed here.

    Rows that no steps bring to an answer count for nothing: where they end is chance.
    """
    x = sample(proxy.problem, _ROWS, seed=1)
    kept = np.arange(len(x))
    if answer == "mean":
        expected = proxy.model.predict(x).mean
    else:
        here = jax.jit(_program(proxy, answer, frozen=False))(x)
        expected = np.asarray(here["y"])
        worst = np.maximum(np.asarray(here["max_equality"]), np.asarray(here["max_inequality"]))
        kept = np.flatnonzero(worst < TOLERANCE)
        if not len(kept):
            raise FeasiblyError("no drawn input was answered without the solver; export mean answers instead")
    expected, found = expected[kept], np.asarray(run(x))[kept]
    one = np.asarray(run(x[kept[:1]]))
    apart = np.concatenate([np.abs(found - expected), np.abs(one - expected[:1])])
    share = float(np.max(apart / (1.0 + np.abs(np.concatenate([expected, expected[:1]]))), initial=0.0))
    single = proxy.model.kind in ("network", "bayesian-network")
    limit = max(CLOSE[ending], _SINGLE if single else 0.0)
    if not share <= limit:
        raise FeasiblyError(
            f"the file would differ from the proxy by {share:.1e}, more than {limit:.0e}; nothing was written"
        )
    return share


def describe(proxy: Proxy, answer: str, kind: str, difference: float) -> dict[str, Any]:
    """What a reader of the file has to know: names, units, bounds, and what the answers are worth."""
    problem = proxy.problem
    low, high = proxy.box if proxy.box is not None else (None, None)
    outputs: dict[str, Any] = {
        "y": {
            "shape": ["rows", problem.n_outputs],
            "names": list(problem.output_names),
            "units": _units(problem, problem.blocks, problem.n_outputs),
            "lower": plain(problem.lower),
            "upper": plain(problem.upper),
        }
    }
    if kind == "stablehlo":
        outputs |= {
            "objective": {"shape": ["rows"], "meaning": "the cost of y"},
            "max_equality": {"shape": ["rows"], "meaning": "the largest violation of an equality"},
            "max_inequality": {
                "shape": ["rows"],
                "meaning": "the largest violation of an inequality or a bound; not above 0 where all hold",
            },
        }
    return {
        "format": kind,
        "answer": answer,
        "problem": problem.name,
        "fingerprint": problem.fingerprint,
        **proxy.record.named,
        "labels": proxy.record.labels,
        "feasibly": __version__,
        "dtype": "float64",
        "inputs": {
            "x": {
                "shape": ["rows", problem.n_inputs],
                "names": list(problem.input_names),
                "units": _units(problem, problem.inputs, problem.n_inputs),
                "nominal": plain(problem.nominal),
                "low": None if low is None else plain(low),
                "high": None if high is None else plain(high),
            }
        },
        "outputs": outputs,
        "largest_difference": difference,
    }


_UNITS = {"va": "rad", "branch": "1 in service, 0 out", "generator": "1 in service, 0 out", "c1": "currency/MWh",
          "c2": "currency/MW^2h"}  # fmt: skip


def _units(problem: Problem, blocks: Any, count: int) -> list[str]:
    grid = grid_of(problem)
    units = [""] * count
    if grid is None:
        return units
    power = f"per unit of {grid.base_mva:g} MVA"
    for name, place in blocks.items():
        unit = "per unit" if name == "vm" else _UNITS.get(name, power)
        units[place] = [unit] * (place.stop - place.start)
    return units
