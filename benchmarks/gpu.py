"""How long `conditioned` takes on an accelerator: saved models in, NumPy inputs in, checked NumPy answers out.

    python benchmarks/gpu.py MODEL [MODEL ...] --out results/gpu.json [--rows 65536] [--repeats 5]

The models are folders made by `Proxy.save`; nothing but JAX, NumPy, SciPy and safetensors is needed where this runs.
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
from feasibly.precision import double


def rates() -> dict[str, float]:
    """What the device does: single-precision products at full and at default precision, and copies, a second."""
    n = 8192 if jax.default_backend() != "cpu" else 1024
    a = jnp.ones((n, n), jnp.float32)
    found = {}
    for name, precision in (("fp32_flops", "highest"), ("default_flops", "default")):
        product = jax.jit(lambda a, precision=precision: jnp.matmul(a, a, precision=precision))
        found[name] = 2 * n**3 / best(lambda product=product: product(a))
    copy = jax.jit(lambda a: a + 1.0)
    found["bytes"] = 2 * a.nbytes / best(lambda: copy(a))
    return found


def best(call: Any, repeats: int = 5) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
    return min(taken)


def measure(folder: Path, rows: int, repeats: int, known: dict[str, float]) -> dict[str, Any]:
    proxy = fb.Proxy.load(folder)
    x = fb.sample(proxy.problem, rows, seed=424242)
    began = time.perf_counter()
    proxy.ladder.answer_on_device(x)
    first = time.perf_counter() - began
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = proxy.ladder.answer_on_device(x)
        taken.append(time.perf_counter() - began)
    worst = np.maximum(found.max_equality, found.max_inequality)
    driver = proxy.ladder.driver
    program = DeviceProgram(driver, proxy.model)
    width = min(program.rows_at_once(), rows)
    with double():
        there = jnp.asarray(x[:width])
    inside = best(lambda: program.run(there), repeats)
    with double():
        belief = best(lambda: program._belief(there), repeats)
        answers = program.run(there).y
        check = best(lambda: program._check(there, answers), repeats)
    n, ne = len(driver.operator(0).free), proxy.problem.n_equalities
    move = 2.0 * (n + ne) ** 2
    level = {name: found.level.count(name) for name in set(found.level)}
    return {
        "model": folder.name,
        "problem": proxy.problem.name,
        "method": proxy.method,
        "labels": proxy.record.labels,
        "rows": rows,
        "batch": width,
        "first_call_seconds": first,
        "seconds": sorted(taken),
        "us_an_instance": 1e6 * min(taken) / rows,
        "us_on_device": 1e6 * inside / width,
        "us_belief": 1e6 * belief / width,
        "us_check": 1e6 * check / width,
        "us_one_step_by_fp32_rate": 1e6 * move / known["fp32_flops"],
        "us_one_step_by_default_rate": 1e6 * move / known["default_flops"],
        "hold_1e-6": float(np.mean(worst < 1e-6)),
        "hold_1e-4": float(np.mean(worst < 1e-4)),
        "ok": int(found.ok.sum()),
        "levels": level,
        "warnings": list(found.warnings),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    device = jax.devices()[0]
    known = rates()
    result: dict[str, Any] = {
        "device": str(device.device_kind), "jax": jax.__version__, "commit": asked.commit, "rates": known, "models": [],
    }  # fmt: skip
    for folder in asked.models:
        try:
            row = measure(folder, asked.rows, asked.repeats, known)
        except (
            Exception
        ) as error:  # the other models are measured all the same, and this one says what stopped it
            row = {"model": folder.name, "error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(row), flush=True)
        result["models"].append(row)
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
