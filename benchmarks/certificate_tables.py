"""The tables of docs/guarantees.md, from what `certificates.py` has measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BEGIN, END = "<!-- certificates: begin -->", "<!-- certificates: end -->"

ANSWERS = ("mean", "conditioned", "auto")
CONFIDENCES = (0.8, 0.9, 0.95, 0.99)

PUBLISHED = {"hoeffding": 0.064, "empirical-bernstein": 0.018, "mpv-bernstein": 0.010}
"""Largest bounds on Vm that the paper gives for case118, p.u."""


def render(result: Mapping[str, Any]) -> str:
    """The tables of docs/guarantees.md."""
    studies = [(case, made) for case, methods in result["cases"].items() for made in methods.values()]
    first = studies[0][1]["coverage"][0]
    said = [
        f"{first['splits']} random splits of the rows a proxy was not trained on, {first['calibration']} to calibrate "
        "and the rest to test; each cell: share covered, in per cent, for each output / all outputs together / gap / "
        "max eq / max ineq. One core; commits in benchmarks/results/certificates.json."
    ]
    lines = ["| case | method | answer | " + " | ".join(f"asked {100 * c:g} %" for c in CONFIDENCES) + " |"]
    lines.append("|---|---|---|" + "---|" * len(CONFIDENCES))
    for case, made in studies:
        for answer in ANSWERS:
            cells = {row["confidence"]: row for row in made["coverage"] if row["answer"] == answer}
            parts = [
                " / ".join(
                    f"{100 * cells[c][name]['mean']:.1f}"
                    for name in ("each", "joint", "gap", "max_eq", "max_ineq")
                )
                for c in CONFIDENCES
            ]
            lines.append(f"| {case} | {made['method']} | {answer} | " + " | ".join(parts) + " |")
    said.append("\n".join(lines))
    said.append(
        "What is promised at 95 % for the next instance, by `certify` on one half of those rows, and how often it came "
        "true on the other half (`predict`, joint intervals):"
    )
    lines = [
        "| case | method | answer | gap <=, % | max eq <= | max ineq <= | held: gap / joint / eq / ineq, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, made in studies:
        for answer, once in made["once"]["answers"].items():
            held = " / ".join(f"{100 * once[name]:.1f}" for name in ("gap", "joint", "max_eq", "max_ineq"))
            lines.append(
                f"| {case} | {made['method']} | {answer} | {shown(once['gap_limit_percent'], '.2g')} | "
                f"{shown(once['max_eq_limit'], '.2g')} | {shown(once['max_ineq_limit'], '.2g')} | {held} |"
            )
    said.append("\n".join(lines))
    said.append(_table_mpv(studies))
    said.append(_table_bounds(result))
    return "\n\n".join(said)


def _table_mpv(studies: list[tuple[str, Any]]) -> str:
    lines = [
        "Is the variance of the error at most 2 MPV? The MPV is that of 500 posterior draws; alpha = total variance / "
        "MPV (median over outputs, and the largest: huge where an output sat at a bound in training, so that the "
        "posterior has no spread, and leaves it later); in brackets with the noise that the model itself states added "
        "to the MPV.",
        "",
        "| case | method | outputs | alpha as the paper writes it | alpha | above 2 |",
        "|---|---|---|---|---|---|",
    ]
    for case, made in studies:
        for name, block in made["mpv"]["blocks"].items():
            paper = "-" if block["alpha_paper"] is None else _pair(block["alpha_paper"], ".2f")
            alpha = _pair(block["alpha"])
            noise = _pair(block["alpha_with_noise"])
            lines.append(
                f"| {case} | {made['method']} | {name} | {paper} | {alpha} ({noise}) | {block['violated']} of "
                f"{block['outputs']} ({block['violated_with_noise']}) |"
            )
    return "\n".join(lines)


def _pair(values: list[float | None], digits: str = ".3g") -> str:
    """Median and largest of `quantiles`."""
    return f"{shown(values[1], digits)}, {shown(values[2], digits)}"


def _table_bounds(result: Mapping[str, Any]) -> str:
    methods = result["cases"]["case118_ieee"]
    one = next(iter(methods.values()))["bounds"]["mean"]["vm"]
    lines = [
        f"Largest bound over all buses on the mean error of Vm, case118_ieee, M = {one['M']}, confidence 0.95, R = "
        f"{one['R']:g} p.u. (the voltage box; answers are clipped to it), p.u. Each cell: half-width / upper end.",
        "",
        "| proxy, answer | largest mean error | " + " | ".join(one["epsilon"]) + " |",
        "|---|---|" + "---|" * len(one["epsilon"]),
    ]
    for name, made in methods.items():
        for answer, found in made["bounds"].items():
            vm = found["vm"]
            cells = [f"{max(vm['epsilon'][m]):.2g} / {max(vm['upper'][m]):.2g}" for m in vm["epsilon"]]
            lines.append(f"| {name}, {answer} | {max(vm['mean_error']):.2g} | " + " | ".join(cells) + " |")
    published = [f"{PUBLISHED[m]:.3f}" if m in PUBLISHED else "-" for m in one["epsilon"]]
    lines.append("| published | - | " + " | ".join(published) + " |")
    implied = [_implied(m, one["M"]) for m in one["epsilon"]]
    lines.append("| R that implies | | " + " | ".join(implied) + " |")
    return "\n".join(lines)


def _implied(method: str, count: int) -> str:
    if method not in PUBLISHED:
        return "-"
    formula = "bernstein" if method == "mpv-bernstein" else method
    size = implied_range(PUBLISHED[method], count, method=formula)
    return f"{size:.2f}" if method == "hoeffding" else f"at most {size:.2f}"


def implied_range(
    epsilon: float, count: int, confidence: float = 0.95, *, method: str = "hoeffding", variance: float = 0.0
) -> float:
    """The R at which a bound on `count` errors comes out as `epsilon`: for reading published figures.

    For the Bernstein bounds `variance` is what stands under the root; at 0 the answer is the largest R that
    the figure allows. `method` is `hoeffding`, `empirical-bernstein`, `bernstein` (two-sided) or
    `bernstein-one-sided` (as the paper writes it).

    Raises:
        ValueError: when the variance alone already exceeds `epsilon`, or the method is not one of these.
    """
    delta = 1.0 - confidence
    if method == "hoeffding":
        return epsilon / math.sqrt(math.log(2.0 / delta) / (2.0 * count))
    sides = {
        "empirical-bernstein": (3.0, 3.0),
        "bernstein": (2.0, 2.0 / 3.0),
        "bernstein-one-sided": (1.0, 2.0 / 3.0),
    }
    if method not in sides:
        raise ValueError(
            f"No range can be read off {method!r}; choose hoeffding or one of {', '.join(sides)}."
        )
    events, factor = sides[method]
    log = math.log(events / delta)
    rest = epsilon - math.sqrt(2.0 * variance * log / count)
    if rest < 0:
        raise ValueError(f"A variance of {variance:g} alone gives more than epsilon = {epsilon:g}.")
    return rest * count / (factor * log)


def insert(page: str, tables: str) -> str:
    head, rest = page.split(BEGIN, 1)
    return f"{head}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END, 1)[1]}"


def shown(value: float | None, digits: str = ".3g") -> str:
    return "inf" if value is None else f"{value:{digits}}"
