"""`feasibly demo`: the main job on defaults, told to people who know one half of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, say, show, tell
from feasibly._cli.files import FileError
from feasibly._cli.options import AsJson, Jobs
from feasibly._words import duration, percent
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from feasibly.certificate import Certificate
    from feasibly.data.dataset import Dataset
    from feasibly.data.label import Progress
    from feasibly.evaluation import Evaluation
    from feasibly.problem.core import Problem
    from feasibly.proxy import Proxy

CASE = "pglib:case57_ieee"
LABELS, TESTS = 512, 1000
DRAWN = 1536
"""About one draw in a hundred has no solution, and the rest must still be enough."""
TIMED = 30
"""Instances that IPOPT solves from a cold start, to know how long it takes."""
BUDGET = 60.0

RUNGS: Mapping[str, str] = {
    "mean": "what was learnt, as it is",
    "conditioned": "moved to obey every constraint",
    "polished": "then on to the optimum itself",
    "solved": "the solver, many rows at once",
    "auto": "as far up as each one needs",
}

CERTIFIED, CONFIDENCE = "conditioned", 0.95

ROWS, MODEL, LOADS, REPORT = "rows.zarr", "model", "loads.csv", "report.html"


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Everything that is written goes in here.")
    ] = Path("feasibly-demo"),
    jobs: Jobs = None,
    json: AsJson = False,
) -> None:
    """Do the main job on a grid of 57 buses, in under two minutes, and explain it on the way.

    Solve examples, learn from them, answer a thousand instances never seen before in every way there is, and
    compare with the solver. The folder keeps the solved rows, the model, a file of loads to try it on, and
    report.html.
    """
    _check_folder(out)
    # Its matrices are small: threads of the linear algebra would spend their time waiting for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began = time.perf_counter()
    spent: dict[str, float] = {}
    with Meter(f"reading {CASE}") as meter, _timing("label", spent):
        data = _solve(out, jobs, meter)
    if not json:
        _introduce(data.problem)
        _explain_examples(data, spent["label"])
    with Meter(f"learning from {LABELS} examples, at most {duration(BUDGET)}"), _timing("train", spent):
        proxy = _learn(out, data)
    if not json:
        _explain_learning(proxy)
    with Meter("answering") as meter, _timing("answer", spent):
        found = _answer(proxy, data, meter)
    with Meter("solving a few instances from a cold start"), _timing("ipopt", spent):
        ipopt = _time_ipopt(data)
    with Meter("proving how near the answers are to the optimum"), _timing("prove", spent):
        proven = _prove(proxy, data)
    with Meter("certifying and writing the report") as meter, _timing("certify", spent):
        promise = _certify(out, proxy, data)
        _write_loads(out, data, proxy)
        meter.turn_to("writing the report")
        report = _write_report(out, data, found, spent, ipopt)
    seconds = time.perf_counter() - began
    if json:
        emit(
            {
                "problem": data.problem.name, "folder": out, "seconds": seconds, "spent": spent,
                "outcomes": data.outcomes(), "ipopt_seconds_per_instance": ipopt,
                "answers": [each.as_dict() for each in found.values()],
                "proven_gap_percent": _median_and_largest(proven),
                "certificate": promise.as_dict(), "report": report,
            }
        )  # fmt: skip
        return
    _explain_answers(found, ipopt)
    _explain_promise(promise)
    _explain_proof(proven)
    _suggest(out, report, seconds)


def _check_folder(out: Path) -> None:
    if out.is_file():
        raise FileError(f"{out} is a file; choose a folder with --out")
    if out.is_dir() and any(out.iterdir()) and not (out / ROWS).exists():
        raise FileError(f"{out} holds something else than an earlier demo; choose another folder with --out")


@contextmanager
def _timing(name: str, spent: dict[str, float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    spent[name] = time.perf_counter() - began


# ---- doing -------------------------------------------------------------------------------------------------


def _solve(out: Path, jobs: int | None, meter: Meter) -> Dataset:
    import feasibly as fb

    problem = fb.load_problem(CASE)
    meter.turn_to("solving examples")

    def tell(progress: Progress) -> None:
        signals.check()
        meter.tell(f"{progress.done} of {progress.total}", progress.done, progress.total)

    return fb.label(
        problem,
        count=DRAWN,
        jobs=jobs,
        out=out / ROWS,
        progress=tell,
    )


def _learn(out: Path, data: Dataset) -> Proxy:
    import feasibly as fb

    proxy = fb.fit(data.problem, data, budget=BUDGET, labels=LABELS, progress=lambda moment: signals.check())
    signals.check()  # training that was cut short is no demonstration
    with signals.writing():
        proxy.save(out / MODEL, overwrite=True)
    return proxy


def _answer(proxy: Proxy, data: Dataset, meter: Meter) -> dict[str, Evaluation]:
    import feasibly as fb

    found = {}
    for rung in RUNGS:
        signals.check()
        meter.turn_to(f"answering {TESTS:,} unseen instances ({rung})")
        found[rung] = fb.evaluate_proxy(proxy, data, rung, limit=TESTS)
    return found


def _time_ipopt(data: Dataset) -> float:
    """Seconds IPOPT takes for one instance from a cold start: the median of a few."""
    import numpy as np

    import feasibly as fb
    from feasibly.solve.records import SolverOptions

    x = data.x[data.solved][-TIMED:]
    return float(np.median(fb.label(data.problem, x, jobs=1, options=SolverOptions(warm="none")).seconds))


def _prove(proxy: Proxy, data: Dataset) -> NDArray[np.float64]:
    """Proven gaps of instances never seen before, in per cent."""
    import numpy as np

    x = data.x[data.solved & data.unseen(proxy.keys)][:TESTS]
    proxy.learn_proofs()
    signals.check()
    gaps = proxy.predict(x, CERTIFIED, prove=True).proven_gap_percent
    assert gaps is not None
    return gaps[np.isfinite(gaps)]


def _certify(out: Path, proxy: Proxy, data: Dataset) -> Certificate:
    import feasibly as fb

    made = fb.certify(proxy, data, CONFIDENCE, answers=(CERTIFIED,))
    signals.check()
    with signals.writing():
        proxy.save(out / MODEL, overwrite=True)
    return made


def _write_report(
    out: Path, data: Dataset, found: Mapping[str, Evaluation], spent: Mapping[str, float], ipopt: float
) -> Path | None:
    """The same for the browser; without the packages that draw it, the demo does without."""
    try:
        from feasibly.report.html import write_report

        with signals.writing():
            return write_report(
                out / REPORT, data, found.values(), main=CERTIFIED, command="feasibly demo",
                seconds={"labels": spent["label"]}, solver_seconds=ipopt,
            )  # fmt: skip
    except FeasiblyError as error:
        say(f"note: no {REPORT}: {error}")
        return None


def _write_loads(out: Path, data: Dataset, proxy: Proxy) -> None:
    from feasibly._cli.columns import write_table

    unseen = data.x[data.solved & data.unseen(proxy.keys)][:10]
    with signals.writing():
        write_table(out / LOADS, {name: unseen[:, i] for i, name in enumerate(data.problem.input_names)})


# ---- telling -----------------------------------------------------------------------------------------------


def _introduce(problem: Problem) -> None:
    from feasibly.problem.families import grid_of

    grid = grid_of(problem)
    assert grid is not None
    tell(
        f"The problem: optimal power flow on a grid of {grid.n_buses} buses ({problem.name}). Given the load at "
        f"{grid.n_loads} places, find what {grid.n_generators} generators should do so that the load is served at "
        "the least cost, the power that enters each bus leaves it again, and no voltage, generator or line exceeds "
        "its limits. A solver finds this by iterating, anew for every set of loads. A proxy learns it from solved "
        f"examples, as a function of {problem.n_inputs} numbers (P and Q of each load) with {problem.n_outputs} "
        "numbers as its value (P and Q of each generator, voltage and angle of each bus)."
    )
    show("")


def _explain_examples(data: Dataset, seconds: float) -> None:
    unsolvable = len(data) - data.n_labels
    without = (
        f" {unsolvable} of them have no solution: no dispatch serves these loads within the limits."
        if unsolvable
        else ""
    )
    tell(
        f"1. Examples: {len(data):,} sets of loads, each load drawn within 20 % of its usual value, and solved; "
        f"{duration(seconds)}.{without}",
        "   ",
    )


def _explain_learning(proxy: Proxy) -> None:
    record = proxy.record
    tell(
        f"2. Learning: the default method ({record.label}) was shown {record.labels} solved examples, and learnt for "
        f"{duration(record.train_seconds)}. The others stay unseen, to test it.",
        "   ",
    )


def _explain_answers(found: Mapping[str, Evaluation], ipopt: float) -> None:
    count = next(iter(found.values())).metrics.count
    tell(f"3. Answering {count:,} sets of loads that it has never seen, from quick to exact:", "   ")
    show(_table(found, ipopt))
    tell(
        "Cost: distance from the least possible cost. Balance: the largest mismatch of power at any bus. Limits: the "
        "largest overshoot of any limit. All are means over the instances, and per unit: 0.01 is 1 MW. Usable: "
        "answers that break nothing by more than 1e-4. Time: of one batch with all instances, divided by their "
        "number; IPOPT solves them one by one, from a cold start."
    )


def _table(found: Mapping[str, Evaluation], ipopt: float) -> Table:
    from rich import box
    from rich.table import Table

    from feasibly._cli.tables import figure

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("answer", style="bold", no_wrap=True)
    table.add_column("what it is")
    for heading in (
        "cost\noff by %",
        "balance\np.u.",
        "limits\np.u.",
        "usable\n%",
        "time\neach",
        "against\nIPOPT",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for rung, each in found.items():
        metrics, seconds = each.metrics, each.predict_seconds_per_instance
        table.add_row(
            rung, RUNGS[rung], figure(metrics.gap_percent), figure(metrics.max_eq), figure(metrics.max_ineq),
            f"{100.0 * metrics.share_feasible:.1f}", duration(seconds), f"{ipopt / seconds:,.1f} x",
        )  # fmt: skip
    table.add_row("IPOPT", "the usual solver", "", "", "", "", duration(ipopt), "1 x")
    return table


def _explain_promise(promise: Certificate) -> None:
    made = promise.answers[CERTIFIED]
    assert made.gap is not None
    show("")
    tell(
        f"4. A promise, from {made.labels:,} examples that it was not trained on: for the next set of loads drawn like "
        f"these, with probability {percent(promise.confidence)} each, the cost of its {CERTIFIED!r} answer is "
        f"within {float(made.gap.limit):.2g} % of the least, no bus is out of balance by more than "
        f"{float(made.max_eq.limit):.2g} p.u., and no limit is exceeded by more than "
        f"{float(made.max_ineq.limit):.2g} p.u. A few hard instances may make an average above larger.",
        "   ",
    )


def _median_and_largest(values: NDArray[np.float64]) -> dict[str, float]:
    import numpy as np

    return {"median": float(np.median(values)), "largest": float(values.max())}


def _explain_proof(proven: NDArray[np.float64]) -> None:
    gap = _median_and_largest(proven)
    show("")
    tell(
        f"5. A proof, of each of the {len(proven):,} answers above and not only on average: whatever was learnt, no "
        f"dispatch that serves its loads within the limits costs less than a bound that comes with it. By these bounds "
        f"half of the answers are at most {gap['median']:.2g} % above the least cost, and none is more than "
        f"{gap['largest']:.2g} % above it. (What is left is the convex relaxation that bounds are made from.)",
        "   ",
    )


def _suggest(out: Path, report: Path | None, seconds: float) -> None:
    seen = f" Look at {report} in a browser." if report is not None else ""
    show("")
    tell(
        f"That took {duration(seconds)}. {out} holds the solved examples, the model, and ten sets of loads.{seen} Next:"
    )
    commands = {
        f"feasibly predict {out / MODEL} {out / LOADS} --out dispatch.csv": "answer loads from a file",
        "feasibly label GRID --count 640 --out data.zarr": "solve examples of a grid of your own",
        "feasibly train data.zarr --budget 60 --out model": "and learn from them",
        f"feasibly serve {out / MODEL}": "then open http://127.0.0.1:8000 and move the loads of this grid",
    }
    widest = max(map(len, commands))
    show(*(f"  {command:<{widest}}  # {what}" for command, what in commands.items()))
