"""A time series of a pandapower net in one batch: profiles in, the tables of pandapower's output writer out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.data.label import label
from feasibly.fitting import fit
from feasibly.interop._pandapower_profiles import profile_inputs, read_profiles
from feasibly.interop.pandapower import from_pandapower
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.proxy import Proxy
from feasibly.train.registry import DEFAULT_METHOD

if TYPE_CHECKING:
    import pandas as pd

LABELS = 256
"""Time steps that are solved exactly and learnt from, unless told."""


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """What a run leaves behind."""

    tables: Mapping[str, pd.DataFrame]
    """`{"res_bus.vm_pu": table, ...}`: a line a time step, a column an element, as pandapower writes it."""
    answer: Answer
    """The answers themselves, a row a time step, with outcomes, violations and prices."""
    proxy: Proxy
    """What answered; to be saved, and handed to the next run of the same net."""
    steps: tuple[Any, ...]
    seconds: Mapping[str, float]
    """Where the time went: `read`, `label`, `fit`, `answer`, `write`."""


def run_timeseries(
    net: Any,
    time_steps: Sequence[Any] | None = None,
    *,
    profiles: Mapping[tuple[str, str], pd.DataFrame] | None = None,
    log: Iterable[tuple[str, str]] | None = None,
    proxy: Proxy | None = None,
    method: str = DEFAULT_METHOD,
    answer: str = "auto",
    labels: int = LABELS,
    budget: float = 60.0,
    seed: int = 0,
    jobs: int | None = None,
    **options: Any,
) -> TimeSeries:
    """What `pandapower.timeseries.run_timeseries(net, time_steps, run=pandapower.runopp)` computes, in one batch.

    Some time steps are solved exactly, a proxy learns from them, and answers all.

    Args:
        net: a pandapower net; it is not changed.
        time_steps: which lines of the profiles, in order; all unless told.
        profiles: `{("load", "p_mw"): table, ...}`, a line a time step and a column an element, named by its index;
            those of the net's own `ConstControl` controllers unless told.
        log: pairs of result table and column; those of the net's own `OutputWriter` unless told, and without one what
            pandapower keeps: `("res_bus", "vm_pu")` and `("res_line", "loading_percent")`.
        proxy: one made for this net before; nothing is solved or learnt then.
        method: how to learn; see `fit`.
        answer: which answer of the ladder; `auto` climbs to the solver where it has to.
        labels: how many time steps to solve and learn from.
        budget: seconds to learn in.
        seed: which time steps are taken.
        jobs: processes for solving; all cores unless told.
        options: of `from_pandapower`: `slack_voltage`, `flow_limit`.

    Raises:
        ProblemError: listing every element, controller or profile that does not fit.
    """
    clock, seconds = time.perf_counter(), dict[str, float]()

    def booked(what: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[what], clock = now - clock, now

    problem = from_pandapower(net, **options) if proxy is None else proxy.problem
    given = read_profiles(net) if profiles is None else profiles
    x, steps = profile_inputs(net, problem, given, time_steps)
    booked("read")
    if proxy is None:
        drawn = _drawn_from(problem, x)
        generator = np.random.Generator(np.random.Philox(key=seed))
        chosen = np.sort(generator.permutation(len(x))[:labels])
        data = label(drawn, x[chosen], jobs=jobs)
        booked("label")
        if int(data.solved.sum()) < 2:
            raise FeasiblyError(
                f"of {len(chosen)} time steps that were solved, {int(data.solved.sum())} have a solution; "
                "check the profiles and the limits of the net"
            )
        proxy = fit(drawn, data, method, budget=budget, seed=seed)
        booked("fit")
    found = proxy.predict(x, answer)
    booked("answer")
    tables = found.to_pandapower(net, _log_of(net) if log is None else log, steps)
    booked("write")
    return TimeSeries(tables, found, proxy, tuple(steps), seconds)


def _log_of(net: Any) -> list[tuple[str, str]] | None:
    if "output_writer" not in net or not len(net.output_writer):
        return None
    writer = net.output_writer.iat[0, 0]
    return [(entry[0], entry[1]) for entry in writer.log_variables]


def _drawn_from(problem: Problem, rows: NDArray[np.float64]) -> Problem:
    """The same problem, whose inputs are drawn from `rows`: between two of them, so that none is quite like another."""

    def draw(generator: np.random.Generator) -> NDArray[np.float64]:
        first, second = rows[generator.integers(len(rows), size=2)]
        return np.asarray(first + generator.random() * (second - first))

    return Problem(
        problem.objective, problem.lower, problem.upper, equality=problem.equality, inequality=problem.inequality,
        violation=problem.violation, sampler=draw, nominal=rows.mean(axis=0), start=problem.start,
        input_names=problem.input_names, output_names=problem.output_names, blocks=problem.blocks,
        inputs=problem.inputs, name=problem.name, spec=problem.spec, some_inequalities=problem._some_inequalities,
    )  # fmt: skip
