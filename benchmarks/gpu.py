"""How long `conditioned` takes on an accelerator: saved models in, NumPy inputs in, checked NumPy answers out.

    python benchmarks/gpu.py MODEL[:ROWS[:SPREAD]] ... --out results/gpu.json [--rows 65536] [--repeats 5]

The models are folders made by `Proxy.save`; nothing but JAX, NumPy, SciPy and safetensors is needed where this runs.
What is in the file already stays, but for models that are measured again.
Beside the time of the whole call stand its parts on the device (belief, steps, check) and what the card allows: the
bytes and operations of the steps taken over the rates measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import feasibly as fb
from feasibly.answer.device import DeviceProgram
from feasibly.answer.device_operator import LARGE, _large
from feasibly.answer.step import DenseIteration
from feasibly.model.small_systems import fastest
from feasibly.precision import double


def rates() -> dict[str, float]:
    """What the device does a second: products in single precision, full, as large operators have it, and as the device
    would by default, and in double;
    bytes within its memory, and bytes to it from memory of the processor that it can read, and back."""
    n = 8192 if jax.default_backend() != "cpu" else 1024
    a = jax.random.normal(jax.random.key(0), (n, n), jnp.float32)
    found = {}
    for name, precision in (
        ("fp32_flops", "highest"),
        ("large_flops", _large()),
        ("default_flops", "default"),
    ):
        product = jax.jit(lambda a, precision=precision: jnp.matmul(a, a, precision=precision))
        found[name] = 2 * n**3 / best(lambda product=product: product(a))
    with double():
        exact = a.astype(jnp.float64)
        product = jax.jit(lambda a: a @ a)
        found["fp64_flops"] = 2 * n**3 / best(lambda: product(exact))
    copy = jax.jit(lambda a: a + 1.0)
    found["bytes"] = 2 * a.nbytes / best(lambda: copy(a))
    device = jax.devices()[0]
    host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    there = jax.sharding.SingleDeviceSharding(device)
    found["bytes_out"] = a.nbytes / best(lambda: jax.device_put(a, host))
    near = jax.device_put(a, host)
    found["bytes_in"] = a.nbytes / best(lambda: jax.device_put(near, there))
    return found


def best(call: Any, repeats: int = 5) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
    return min(taken)


def measure(
    folder: Path, rows: int, spread: float, repeats: int, known: dict[str, float], keep: Path | None
) -> dict[str, Any]:
    proxy = fb.Proxy.load(folder)
    x = fb.sample(proxy.problem, rows, seed=424242, spread=spread)
    began = time.perf_counter()
    proxy.predict(x)
    first = time.perf_counter() - began
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = proxy.predict(x)
        taken.append(time.perf_counter() - began)
    worst = np.maximum(found.max_equality, found.max_inequality)
    if keep is not None:  # for comparison with a processor's answers, where there is a solver
        keep.mkdir(parents=True, exist_ok=True)
        few = {"y": found.y[:256], "objective": found.objective[:256], "worst": worst[:256]}
        np.savez(keep / f"{folder.name}.npz", missed=np.flatnonzero(~found.ok), **few)
    driver, program = proxy.ladder.driver, proxy.ladder._program
    if program is None:  # no accelerator, or one without room: the same program here
        program = DeviceProgram(driver, proxy.model, proxy.box)
    width = min(program.rows_at_once, rows)
    with double():
        there = jnp.asarray(x[:width])
    inside = best(lambda: program.run(there), repeats)
    with double():
        start = program._begin(there)
        belief = best(lambda: program._begin(there), repeats)
        answers = program.run(there).y
        check = best(lambda: program._check(there, answers), repeats)
        step = one_step(program, start)
    n, ne, candidates = (
        len(program._operator.free),
        proxy.problem.n_equalities,
        len(driver.calibration.candidates),
    )
    taken_steps = sum(count * steps for count, steps in program.passes) / width
    inverse = program._operator.inverse
    move = 2.0 * (inverse.precision.size * (inverse.precision.ndim > 1) + (2 * n + ne) * candidates)
    large = known["large_flops" if n + ne >= LARGE else "fp32_flops"]
    exact = 6.0 * candidates**2
    through = 8.0 * (proxy.problem.n_inputs + proxy.problem.n_outputs)
    level = {name: found.level.count(name) for name in set(found.level)}
    return {
        "model": folder.name,
        "problem": proxy.problem.name,
        "method": proxy.method,
        "labels": proxy.record.labels,
        "candidates": candidates,
        "operators": len(program._operators),
        "sparse_on_the_processor": bool(driver.calibration.sparse),
        "operator_bytes": int(sum(part.nbytes for part in jax.tree.leaves(inverse))),
        "peak_bytes": int((jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)),
        "small_systems": fastest().__name__,
        "spread": spread,
        "rows": rows,
        "batch": width,
        "first_call_seconds": first,
        "seconds": sorted(taken),
        "us_an_instance": 1e6 * min(taken) / rows,
        "us_on_device": 1e6 * inside / width,
        "us_belief": 1e6 * belief / width,
        "us_check": 1e6 * check / width,
        "us_step_without_complementarity": 1e6 * step / width,
        "passes": program.passes,
        "steps_an_instance": taken_steps,
        "limit_us_copies": 1e6 * (8.0 * proxy.problem.n_inputs / known["bytes_in"]
                                  + 8.0 * proxy.problem.n_outputs / known["bytes_out"]),
        "limit_us_products": 1e6 * taken_steps * (
            2.0 * (n + ne) ** 2 / large + move / known["fp32_flops"] + exact / known["fp64_flops"]),
        "limit_us_ten_moves_fp32": 1e7 * 2.0 * (n + ne) ** 2 / known["fp32_flops"],
        "limit_us_memory": 1e6 * taken_steps * 2.0 * through / known["bytes"],
        "hold_1e-6": float(np.mean(worst < 1e-6)),
        "hold_1e-4": float(np.mean(worst < 1e-4)),
        "ok": int(found.ok.sum()),
        "levels": level,
        "warnings": list(found.warnings),
    }  # fmt: skip


def one_step(program: DeviceProgram, start: Any) -> float:
    """Seconds of one step of a whole batch if no candidate's multiplier ever changed."""
    calibration = program._driver.calibration
    iteration = DenseIteration(
        program._driver.search,
        calibration.candidates,
        calibration.max_changes,
        calibration.settings,
        unchanged,
    )

    costs = jnp.full((2, start[0].shape[1]), jnp.inf)

    def run(steps: int) -> Any:
        return iteration.on_device(program._operators[0], *start, costs, None, steps, rounds=(0, 0))

    return (best(lambda: run(4)) - best(lambda: run(1))) / 3.0


def unchanged(
    pivoted: Any, q: Any, previous: Any, active: Any, flips: int, rounds: Any, settings: Any = None
) -> tuple[Any, Any, Any]:
    return previous, active, None


def _asked(name: str, rows: int) -> tuple[Path, int, float]:
    folder, *rest = name.split(":")
    return Path(folder), int(rest[0]) if rest else rows, float(rest[1]) if rest[1:] else 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "models", nargs="+", help="folders, each with rows and a spread of its own after colons"
    )
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commit", default="")
    parser.add_argument("--keep", type=Path, help="a folder for some answers, and which rows have none")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    device = jax.devices()[0]
    known = rates()
    before = (
        json.loads(asked.out.read_text(encoding="utf-8"))["models"]
        if asked.out and asked.out.exists()
        else []
    )
    result: dict[str, Any] = {
        "device": str(device.device_kind), "jax": jax.__version__, "rates": known, "models": [],
    }  # fmt: skip
    models = [_asked(name, asked.rows) for name in asked.models]
    result["models"] = [row for row in before if row["model"] not in {folder.name for folder, *_ in models}]
    for folder, rows, spread in models:
        try:
            row = measure(folder, rows, spread, asked.repeats, known, asked.keep)
        except (
            Exception
        ) as error:  # the other models are measured all the same, and this one says what stopped it
            row = {"model": folder.name, "error": f"{type(error).__name__}: {error}"[:500]}
        row["commit"] = asked.commit
        print(json.dumps(row), flush=True)
        result["models"].append(row)
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
