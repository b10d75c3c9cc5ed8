"""What flows through a grid at an answer, how loaded its branches are, and what its constraints are called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.extras import BLOCKS, EQUALITIES, INEQUALITIES
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Flows:
    """Power through every branch, per unit on the case's base: `(rows, branches)` each, in file order."""

    p_from: Array
    """Active power into the branch at its from end."""
    q_from: Array
    """Reactive power into the branch at its from end."""
    p_to: Array
    """Active power into the branch at its to end."""
    q_to: Array
    """Reactive power into the branch at its to end."""
    loading_from: Array
    """Share of the tightest limit, of apparent power or current, at the from end in per cent; NaN without a limit."""
    loading_to: Array
    """The same at the to end."""

    @property
    def loading(self) -> Array:
        """At the more loaded end."""
        return np.maximum(self.loading_from, self.loading_to)


def voltages(problem: Problem, y: Array) -> Complex:
    """Complex bus voltages of every row."""
    vm, va = y[:, problem.blocks["vm"]], y[:, problem.blocks["va"]]
    return np.asarray(vm * np.exp(1j * va))


def in_service(problem: Problem, grid: Grid, x: Array) -> Array:
    """1 where a branch is in service and 0 where it is not: `(rows, branches)`."""
    where = getattr(problem, "inputs", {}).get("branch")
    return np.ones((len(x), grid.n_branches)) if where is None else np.asarray(x[:, where])


def units_running(problem: Problem, grid: Grid, x: Array) -> Array:
    """1 where a generator is in service and 0 where it is not: `(rows, generators)`."""
    where = getattr(problem, "inputs", {}).get("generator")
    return np.ones((len(x), grid.n_generators)) if where is None else np.asarray(x[:, where])


def ratings(problem: Problem, grid: Grid, x: Array) -> Array:
    """The limit on apparent power of every branch, infinite where there is none: `(rows, branches)`."""
    where = getattr(problem, "inputs", {}).get("rating")
    rate = np.tile(grid.rate, (len(x), 1))
    if where is not None:
        given = np.asarray(x[:, where])
        if given.shape[1] == grid.n_branches:
            return given
        rate[:, np.isfinite(grid.rate)] = given
    return rate


def compute_flows(problem: Problem, grid: Grid, x: Array, y: Array) -> Flows:
    """The flows at `y` (rows first, in the problem's units)."""
    v = voltages(problem, y)
    on = in_service(problem, grid, x)
    y_ff, y_ft, y_tf, y_tt = grid.admittances()
    at_from, at_to = v[:, grid.branch_from], v[:, grid.branch_to]
    from_end = on * at_from * np.conj(y_ff * at_from + y_ft * at_to)
    to_end = on * at_to * np.conj(y_tf * at_from + y_tt * at_to)
    unlimited = ~(np.isfinite(grid.rate) | np.isfinite(grid.current))
    shares = []
    for power, voltage in ((from_end, at_from), (to_end, at_to)):
        size = np.abs(power)
        # An infinite limit leaves a share of zero, which says nothing of a branch without any limit.
        share = np.maximum(size / ratings(problem, grid, x), size / (np.abs(voltage) * grid.current))
        shares.append(np.where(unlimited, np.nan, 100.0 * share))
    return Flows(from_end.real, from_end.imag, to_end.real, to_end.imag, *shares)


_COMPONENTS = {
    name: "generator"
    if name in ("cost_pg", "cost_qg", "reserve")
    else "branch"
    if name.endswith("link")
    else "DC line"
    for name in BLOCKS
}
_OWNERS = {"user constraint": "constraint", "interface limit": "interface", "reserve zone": "zone"}


@dataclass(frozen=True)
class Limit:
    """One limit of a problem: whose it is, and which."""

    component: str
    id: int | str
    kind: str
    end: str = ""
    """`from` or `to` of a branch, `minimum` or `maximum`."""

    @property
    def what(self) -> str:
        """Which of its limits, in words: `apparent from`."""
        return f"{self.kind} {self.end}".rstrip()

    @property
    def name(self) -> str:
        """One word for files: `apparent_from_12`."""
        return f"{self.what.replace(' ', '_')}_{self.id}"


def limits(problem: Problem, grid: Grid | None) -> tuple[list[Limit], list[Limit]]:
    """What bounds of outputs belong to, and what inequalities are: one entry an output, one an inequality."""
    if grid is None:
        outputs = [Limit("output", name, "bound") for name in problem.output_names]
        rows = [Limit("inequality", row, "inequality") for row in range(problem.n_inequalities)]
        return outputs, rows
    outputs = []
    for kind, component, ids in (
        ("pg", "generator", grid.gen_id),
        ("qg", "generator", grid.gen_id),
        ("vm", "bus", grid.bus_id),
        ("va", "bus", grid.bus_id),
    ):
        outputs += [Limit(component, int(number), kind) for number in ids]
    extras = grid.extras
    if extras is not None:
        for kind_number, number in zip(extras.kind, extras.number, strict=True):
            outputs.append(Limit(_COMPONENTS[BLOCKS[kind_number]], int(number), BLOCKS[kind_number]))
    rated, current = np.isfinite(grid.rate), np.isfinite(grid.current)
    rows = []
    for kind, end, members in (
        ("apparent", "from", rated),
        ("apparent", "to", rated),
        ("current", "from", current),
        ("current", "to", current),
        ("angle", "maximum", np.isfinite(grid.angmax)),
        ("angle", "minimum", np.isfinite(grid.angmin)),
    ):
        rows += [Limit("branch", int(number), kind, end) for number in grid.branch_id[members]]
    if extras is not None:
        for kind_number, number in zip(extras.less_kind, extras.less_number, strict=True):
            what = INEQUALITIES[kind_number]
            rows.append(Limit(_OWNERS.get(what, "generator"), int(number), what))
        rows += [Limit("branch", int(number), "link limit") for number in extras.disc_number]
    return outputs, rows


def equality_names(problem: Problem, grid: Grid | None) -> list[str]:
    """What the equalities are called."""
    if grid is None:
        return [f"c{row}" for row in range(problem.n_equalities)]
    names = [f"{kind}_balance_{bus}" for kind in ("p", "q") for bus in grid.bus_id]
    if grid.extras is not None:
        for kind_number, number in zip(grid.extras.equal_kind, grid.extras.equal_number, strict=True):
            names.append(f"{EQUALITIES[kind_number].replace(' ', '_')}_{number}")
    return names
