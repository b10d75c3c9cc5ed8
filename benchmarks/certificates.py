"""What certificates are worth on real grids: coverage by resampling, and the numbers behind the paper's figures.

    python benchmarks/certificates.py                          both cases, ridge and the default method
    python benchmarks/certificates.py --cases case57_ieee --methods ridge --splits 100
    python benchmarks/certificates.py --docs                   also write the tables into docs/guarantees.md

Labels are made on the spot (`--store FOLDER` keeps them). One core; some minutes a case, most of them compiling.
A run replaces its own cases and methods in benchmarks/results/certificates.json and keeps the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from certificate_tables import ANSWERS, CONFIDENCES, insert, render
from feasibly import promise
from feasibly.certificate.making import split
from feasibly.certificate.making.means import (
    beyond_tolerance,
    bound_means,
    clipped_errors,
    find_ranges,
    predictive_spread,
)

HERE = Path(__file__).parent
RESULT = HERE / "results" / "certificates.json"
DOCS = HERE.parent / "docs" / "guarantees.md"

CASES, METHODS = ("case57_ieee", "case118_ieee"), ("ridge", "response")
TRAIN, COUNT, CALIBRATION, RULE, M = 512, 2560, 500, 300, 1000
DRAWS = 500
VA_RANGE = 1.0
"""Radians; angles have no bounds, so somebody has to state R, and here it is this."""


# ---- one proxy ------------------------------------------------------------------------------------------


def study(problem: fb.Problem, data: fb.Dataset, method: str, budget: float, splits: int) -> dict[str, Any]:
    began = time.perf_counter()
    proxy = fb.fit(problem, data, method, labels=TRAIN, budget=budget)
    say(f"{method}: trained in {proxy.record.train_seconds:.1f} s")
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))
    aside, rest = rows[:RULE], rows[RULE:]
    rule = split.find_rule(proxy, data.x[aside], data.objective[aside], 0.95)
    scored, seconds = {}, {}
    for answer in ANSWERS:
        trust = rule.trusts if answer == "auto" else None
        found = proxy.ladder.answer(data.x[rest], answer, trust=trust)
        scored[answer] = split.score(found, data.objective[rest])
        seconds[answer] = found.seconds / len(rest)
        say(f"{method}: {answer} answered {len(rest)} rows in {found.seconds:.1f} s, {scored[answer].rungs}")
    floor = split.floor_of(proxy)
    shapes = {}
    for answer in ANSWERS:
        trust = rule.trusts if answer == "auto" else None
        before = split.score(proxy.ladder.answer(data.x[aside], answer, trust=trust), data.objective[aside])
        shapes[answer] = split.find_shape(before, data.y[aside], floor, 0.95)
    coverage = [
        {"answer": answer, **row}
        for answer in ANSWERS
        for row in cover(scored[answer], data.y[rest], floor, shapes[answer], problem, splits)
    ]
    say(f"{method}: coverage over {splits} splits")
    spread, source = predictive_spread(proxy.model, data.x[rest[:M]], DRAWS, 0)
    stated = promise.Spread(spread.mean, proxy.model.predict(data.x[rest[:M]]).std ** 2)
    return {
        "method": method,
        "train_seconds": proxy.record.train_seconds,
        "rungs": scored["auto"].rungs,
        "coverage": coverage,
        "once": end_to_end(proxy, data, rest),
        "cross": cross(proxy, data, rest) if method == "ridge" else None,
        "mpv": {"draws": DRAWS, "source": source, **variances(problem, spread, stated, data.y[rest[:M]])},
        "bounds": {
            answer: bounds(problem, scored[answer].y[:M], data.y[rest[:M]], spread.mpv)
            for answer in ANSWERS[:2]
        },
        "convergence": convergence(problem, proxy, data, rest),
        "seconds": round(time.perf_counter() - began, 1),
    }


def cover(
    scored: split.Scored,
    truth: np.ndarray,
    floor: np.ndarray,
    shape: np.ndarray,
    problem: fb.Problem,
    splits: int,
) -> Iterator[dict[str, Any]]:
    """Coverage of fresh rows by what was calibrated on others, averaged over random splits of the rows."""
    free = problem.lower < problem.upper
    for confidence in CONFIDENCES:
        seen: dict[str, list[float]] = {name: [] for name in ("each", "joint", "gap", "max_eq", "max_ineq")}
        for number in range(splits):
            order = np.random.default_rng([number, 1]).permutation(len(truth))
            left, right = order[:CALIBRATION], order[CALIBRATION:]
            mine, theirs = scored.take(left), scored.take(right)
            each, joint = split.next_outputs(mine, truth[left], floor, confidence, shape)
            seen["each"].append(float(each.covers(truth[right], theirs.y, theirs.std)[:, free].mean()))
            seen["joint"].append(float(joint.covers(truth[right], theirs.y, theirs.std).mean()))
            limits = {"gap": split.next_gap(mine, confidence)}
            limits["max_eq"], limits["max_ineq"] = split.next_violations(mine, confidence)
            values = {"gap": theirs.gap_percent, "max_eq": theirs.max_eq, "max_ineq": theirs.max_ineq}
            for name, limit in limits.items():
                seen[name].append(float((values[name] <= float(limit.limit)).mean()))
        low, high = promise.coverage_range(CALIBRATION, confidence)
        yield {
            "confidence": confidence,
            "calibration": CALIBRATION,
            "test": len(truth) - CALIBRATION,
            "splits": splits,
            "range_expected": [round(low, 4), round(high, 4)],
            **{
                name: {
                    "mean": round(float(np.mean(got)), 5),
                    "error": round(float(np.std(got) / np.sqrt(splits)), 5),
                    "p5": round(float(np.percentile(got, 5)), 4),
                    "p95": round(float(np.percentile(got, 95)), 4),
                }
                for name, got in seen.items()
            },
        }


def end_to_end(proxy: fb.Proxy, data: fb.Dataset, rest: np.ndarray) -> dict[str, Any]:
    """`certify` on one half of the rows, `predict` on the other, as a user would; and what happens to odd batches."""
    half = len(rest) // 2
    made = fb.certify(proxy, data.take(rest[:half]), 0.95, ranges={"va": VA_RANGE}, draws=DRAWS)
    x, y, cost = data.x[rest[half:]], data.y[rest[half:]], data.objective[rest[half:]]
    answers = {}
    for answer in made.answers:
        found = proxy.predict(x, answer)
        assert found.lower is not None
        assert found.upper is not None
        assert found.gap_limit is not None
        attached = np.isfinite(found.lower).all(axis=1)
        inside = ((found.lower <= y) & (y <= found.upper)).all(axis=1)
        gap = 100.0 * np.abs(found.objective - cost) / np.abs(cost)
        promised = made.answers[answer]
        answers[answer] = {
            "rows": len(x),
            "attached": int(attached.sum()),
            "joint": round(float(inside[attached].mean()), 4),
            "gap": round(float((gap <= found.gap_limit)[attached].mean()), 4),
            "gap_limit_percent": tidy(float(promised.gap.limit)) if promised.gap is not None else None,
            "max_eq": round(float((found.max_equality <= promised.max_eq.limit).mean()), 4),
            "max_eq_limit": tidy(float(promised.max_eq.limit)),
            "max_ineq": round(float((found.max_inequality <= promised.max_ineq.limit).mean()), 4),
            "max_ineq_limit": tidy(float(promised.max_ineq.limit)),
            "warnings": list(found.warnings),
        }
    reference = made.reference
    batches = [x[first : first + 50] for first in range(0, len(x) - 49, 50)]
    alarms = sum(promise.check_batch(reference, batch, permutations=999).alarm for batch in batches)
    wide = fb.sample(proxy.problem, 200, seed=77, spread=0.25)
    low, high = proxy.box if proxy.box is not None else (-np.inf, np.inf)
    inside_box = np.clip(wide, low, high)
    proxy.certificate = None
    return {
        "labels": made.labels,
        "answers": answers,
        "honest_batches": len(batches),
        "false_alarms": int(alarms),
        "shifted_alarm": bool(promise.check_batch(reference, inside_box[:50], permutations=999).alarm),
        "shift": "50 draws of spread 0.25, clipped to the declared range of spread 0.2",
        "words": made.describe().splitlines(),
    }


def cross(proxy: fb.Proxy, data: fb.Dataset, rest: np.ndarray) -> dict[str, Any]:
    """CV+ on the training labels alone, for the mean answer."""
    made = fb.certify(proxy, data, 0.95, variant="cross", answers=("mean",), draws=DRAWS)
    some = rest[:400]
    free = proxy.problem.lower < proxy.problem.upper
    found = {}
    for region in ("joint", "each"):
        got = proxy.predict(data.x[some], "mean", region=region)
        assert got.lower is not None
        assert got.upper is not None
        assert got.gap_limit is not None
        inside = (got.lower <= data.y[some]) & (data.y[some] <= got.upper)
        found[region] = round(float((inside.all(axis=1) if region == "joint" else inside[:, free]).mean()), 4)
        gap = 100.0 * np.abs(got.objective - data.objective[some]) / np.abs(data.objective[some])
        found["gap"] = round(float((gap <= got.gap_limit).mean()), 4)
    proxy.certificate = None
    collected = made.answers["mean"].cross
    assert collected is not None
    return {
        "rows": len(some),
        "nominal": 0.95,
        "guarantee": round(collected.guarantee, 4),
        "folds": len(made.folds),
        **found,
    }


# ---- the paper's figures --------------------------------------------------------------------------------


def variances(
    problem: fb.Problem, spread: promise.Spread, stated: promise.Spread, truth: np.ndarray
) -> dict[str, Any]:
    """2 x MPV against both versions of the total variance, output by output."""
    report = promise.measure_alpha(spread, beyond_tolerance(truth, spread.mean))
    other = promise.measure_alpha(stated, beyond_tolerance(truth, spread.mean))
    free = problem.lower < problem.upper
    blocks = {}
    for name, block in problem.blocks.items():
        chosen = np.arange(problem.n_outputs)[block]
        chosen = chosen[free[chosen]]
        blocks[name] = {
            "mpv": tidy(report.mpv[chosen]),
            "total": tidy(report.total[chosen]),
            "paper": tidy(report.paper[chosen]) if report.paper is not None else None,
            "alpha": quantiles(report.alpha[chosen]),
            "alpha_interval_of_median": tidy(
                [float(np.median(report.alpha_lower[chosen])), float(np.median(report.alpha_upper[chosen]))]
            ),
            "alpha_paper": quantiles(report.alpha_paper[chosen]) if report.alpha_paper is not None else None,
            "needed": quantiles(report.needed[chosen]),
            "violated": int(report.violated[chosen].sum()),
            "surely_violated": int(report.surely_violated[chosen].sum()),
            "outputs": len(chosen),
            "alpha_with_noise": quantiles(other.alpha[chosen]),
            "violated_with_noise": int(other.violated[chosen].sum()),
        }
    return {"instances": report.count, "alpha": 2.0, "verdict": report.describe(), "blocks": blocks}


def bounds(problem: fb.Problem, y: np.ndarray, truth: np.ndarray, mpv: np.ndarray) -> dict[str, Any]:
    """Every bound on the mean error of Vm and Va, bus by bus, at equal R, M and confidence."""
    known = find_ranges(problem, {"va": VA_RANGE})
    errors, _ = clipped_errors(problem, y, truth, known)
    made = {}
    for name in ("vm", "va"):
        chosen = np.arange(problem.n_outputs)[problem.blocks[name]]
        place = np.searchsorted(known.known, chosen)
        size = known.outputs[chosen]
        found = bound_means(errors[:, place], size, 0.95, mpv=mpv[chosen])
        made[name] = {
            "R": tidy(float(size.max())),
            "M": len(errors),
            "confidence": 0.95,
            "mean_error": tidy(errors[:, place].mean(axis=0)),
            "epsilon": {method: tidy(bound.epsilon) for method, bound in found.items()},
            "upper": {method: tidy(bound.upper) for method, bound in found.items()},
        }
    return made


def convergence(problem: fb.Problem, proxy: fb.Proxy, data: fb.Dataset, rest: np.ndarray) -> dict[str, Any]:
    """How the mean error, the MPV and the total variance settle, averaged over the outputs of a block."""
    rows = rest[:M]
    x, y = data.x[rows], data.y[rows]
    spread, _ = predictive_spread(proxy.model, x, DRAWS, 1)
    found: dict[str, Any] = {"instances": [], "draws": []}
    for count in (10, 20, 50, 100, 200, 500, M):
        part = promise.Spread(spread.mean[:count], spread.variance[:count])
        report = promise.measure_alpha(part, y[:count], resamples=2)
        error = np.abs(y[:count] - spread.mean[:count]).mean(axis=0)
        found["instances"].append({"count": count, **_blocks(problem, error, report)})
    for count in (5, 10, 20, 50, 100, 200, DRAWS):
        few, _ = predictive_spread(proxy.model, x, count, 1)
        report = promise.measure_alpha(few, y, resamples=2)
        found["draws"].append({"count": count, **_blocks(problem, np.abs(y - few.mean).mean(axis=0), report)})
    return found


def _blocks(problem: fb.Problem, error: np.ndarray, report: promise.AlphaReport) -> dict[str, Any]:
    return {
        name: {
            "mean_error": tidy(float(error[block].mean())),
            "mpv": tidy(float(report.mpv[block].mean())),
            "total": tidy(float(report.total[block].mean())),
        }
        for name, block in problem.blocks.items()
    }


# ---- writing --------------------------------------------------------------------------------------------


def tidy(values: Any) -> Any:
    """Five significant digits, as plain numbers; `None` for what is infinite, which JSON cannot say."""
    if isinstance(values, float):
        return float(f"{values:.5g}") if np.isfinite(values) else None
    return [tidy(float(value)) for value in np.asarray(values).ravel()]


def quantiles(values: np.ndarray) -> list[float]:
    return list(tidy(np.percentile(values, [0, 50, 100], method="nearest")))


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    listed = Path("/proc/cpuinfo")
    names = (
        [line for line in listed.read_text().splitlines() if line.startswith("model name")]
        if listed.exists()
        else []
    )
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "machine": platform.machine(),
        "processor": names[0].split(":", 1)[1].strip() if names else "not stated",
        "cores": os.cpu_count(),
        "cores_used": 1,
        "python": platform.python_version(),
        "commit": asked.stdout.strip() or "unknown",
    }


def labelled(case: str, store: Path | None) -> tuple[fb.Problem, fb.Dataset]:
    problem = fb.load_problem(f"pglib:{case}")
    say(f"{case}: labelling {COUNT} rows")
    out = None if store is None else store / f"{case}.zarr"
    data = fb.label(problem, count=COUNT, seed=0, jobs=1, out=out)
    say(f"{case}: {data.outcomes()}")
    return problem, data


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--store", type=Path, help="keep labels here")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/guarantees.md")
    parser.add_argument("--render", action="store_true", help="run nothing; only render the stored result")
    asked = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "certificates", "cases": {}}
    if RESULT.exists():
        result = json.loads(RESULT.read_text())
    if not asked.render:
        about = machine()
        for case in asked.cases.split(","):
            problem, data = labelled(case, asked.store)
            for method in asked.methods.split(","):
                made = study(problem, data, method, asked.budget, asked.splits)
                result["cases"].setdefault(case, {})[method] = {
                    **about,
                    "budget_seconds": asked.budget,
                    **made,
                }
                RESULT.parent.mkdir(exist_ok=True)
                RESULT.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
                say(f"{case} {method}: done in {made['seconds']} s")
    tables = render(result)
    print(tables)
    if asked.docs:
        DOCS.write_text(insert(DOCS.read_text(), tables))


if __name__ == "__main__":
    main()
