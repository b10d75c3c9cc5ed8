"""How many optimisation steps a second each stage takes, and where a step's time goes.

    taskset -c 0 python benchmarks/steps.py pglib:case57_ieee pglib:case118_ieee

Sup with 512 labels in one batch, UnSup with 2048 unlabelled inputs in one batch and in batches of 512, at the paper's
width. Labels are made up (the speed does not depend on them). Seconds are processor time, so that a busy machine
does not spoil them; wall-clock time on a free core is the same.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.problem.families import load_problem
from feasibly.problem.sampling import sample
from feasibly.train.bayesian import BayesianLearner, BayesianSettings
from feasibly.train.task import Task
from feasibly.train.variational import draw
from learning import describe, save

LABELS, UNLABELLED = 512, 2048


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """The quickest of several calls, in processor time."""
    jax.block_until_ready(call())
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        jax.block_until_ready(call())
        best = min(best, time.process_time() - begun)
    return best


def task_of(source: str) -> Task:
    problem = load_problem(source)
    x = sample(problem, LABELS + 16, seed=0)
    random = np.random.default_rng(0)
    y = problem.start + 0.01 * random.standard_normal((len(x), problem.n_outputs))
    inputs = sample(problem, UNLABELLED, seed=1)
    return Task(problem, x[:LABELS], y[:LABELS], x[LABELS:], y[LABELS:], inputs)


def measure(task: Task, program: str, steps: int, **settings: Any) -> dict[str, float]:
    learner = BayesianLearner("steps", task, BayesianSettings(**settings))
    stage = next(stage for stage in learner.stages if stage.program == program)
    state, data = learner.init(0), learner.data(program)
    carry = learner.begin(state, stage, 0)
    lowered = jax.jit(learner.advance(program)).lower(carry, np.int32(1), data)
    begun = time.process_time()
    compiled = lowered.compile()
    compile_seconds = time.process_time() - begun
    whole = seconds(lambda: compiled(carry, np.int32(steps), data)) / steps

    rows = data[0][: settings.get("unlabelled_batch") or len(data[0])] if program == "unsup" else data[0]
    raw = data[1][: len(rows)]
    key = jax.random.key(0)
    drawing = jax.jit(lambda p: draw(p, key))
    weights = drawing(state)
    network = jax.jit(jax.grad(lambda w: jnp.sum(learner.architecture.forward(w, rows) ** 2)))
    parts = {"draw weights": seconds(lambda: drawing(state)), "network": seconds(lambda: network(weights))}
    if program == "unsup":
        answers = learner.outputs.answer(learner.architecture.forward(weights, rows))
        violation = jax.jit(jax.grad(lambda y: jnp.sum(learner._violation(raw, y) ** 2)))
        parts["constraints"] = seconds(lambda: violation(answers))
    parts["the rest"] = max(whole - sum(parts.values()), 0.0)
    gflop = 6.0 * len(rows) * learner.architecture.is_weight.sum() / 1e9
    return {
        "steps_per_second": 1.0 / whole, "compile_seconds": compile_seconds, "network_gflop": gflop,
        **{f"ms {name}": 1e3 * value for name, value in parts.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="*", default=["pglib:case57_ieee"])
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for source in arguments.sources:
        task = task_of(source)
        cases = {
            f"Sup, {LABELS} labels": ("sup", {}),
            f"UnSup, {UNLABELLED} inputs": ("unsup", {"unlabelled_batch": 0}),
            "UnSup, batches of 512": ("unsup", {"unlabelled_batch": 512}),
            f"Sup, {LABELS} labels, local reparameterisation": ("sup", {"estimator": "local"}),
        }
        for name, (program, settings) in cases.items():
            found = measure(task, program, arguments.steps, **settings)
            results.setdefault(source, {})[name] = found
            shown = ", ".join(
                f"{key} {value:.1f}" for key, value in found.items() if key != "steps_per_second"
            )
            print(f"{source}  {name}: {found['steps_per_second']:.1f} steps/s ({shown})", flush=True)
    save("steps", describe() | {"results": results})


if __name__ == "__main__":
    main()
