"""Answers into PyPSA's tables of results, as its power flow leaves them, with prices as its optimisation does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop.pypsa import check_network, in_service, read_branches, read_pypsa
from feasibly.problem.errors import Fault, FeasiblyError, ProblemError
from feasibly.problem.families import grid_of
from feasibly.problem.flows import Flows, compute_flows
from feasibly.problem.grid import Grid

Floats = NDArray[np.float64]

_SAME = (
    "gen_bus",
    "load_bus",
    "branch_from",
    "branch_to",
    "r",
    "x",
    "g_from",
    "b_from",
    "tap",
    "shift",
    "gs",
    "bs",
)


def write_pypsa(answer: Any, network: Any, row: int = 0, snapshot: Any = None) -> None:
    """Fill one snapshot of `network` with one row of `answer`; see `Answer.write_pypsa`."""
    rows = len(answer.y)
    if not -rows <= row < rows:
        raise FeasiblyError(f"there is no row {row}; the answer has {rows}, counted from 0")
    if not np.isfinite(answer.y[row]).all():
        raise FeasiblyError(f"row {row} has no answer: {answer.outcome[row].advice}")
    if answer.problem is None or answer.x is None:
        raise FeasiblyError(
            "this answer was put together without its problem and inputs, which a network needs"
        )
    moment = check_network(network, snapshot)
    grid = grid_of(answer.problem)
    if grid is None:
        raise FeasiblyError(
            f"{answer.problem.name} is not a grid, so there is nothing to write into a network"
        )
    _check_same(network, moment, grid)

    base, blocks, y = grid.base_mva, answer.problem.blocks, answer.y[row]
    pg, qg, vm, va = (y[blocks[key]] for key in ("pg", "qg", "vm", "va"))
    p, q = (part * base for part in np.split(answer.x[row][: 2 * grid.n_loads], 2))
    buses = network.buses.index
    injected = np.zeros((2, len(buses)))
    for value, sign, spots in (
        (np.stack([pg, qg]) * base, 1.0, grid.gen_bus),
        (np.stack([p, q]), -1.0, grid.load_bus),
    ):
        for k in range(2):
            np.add.at(injected[k], spots, sign * value[k])
    shunt = vm[grid.shunt_bus] ** 2 * base
    into = _Writer(network, moment)
    if "pdc_from" in blocks:
        links = in_service(network.links)
        taken, given = (y[blocks[key]] * base for key in ("pdc_from", "pdc_to"))
        into.put("Link", links.index, p0=taken, p1=-given)
        for end, power in (("bus0", -taken), ("bus1", given)):
            np.add.at(injected[0], buses.get_indexer(links[end]), power)
    into.put("Bus", buses, v_mag_pu=vm, v_ang=va, p=injected[0], q=injected[1])
    if answer.duals is not None:
        into.put("Bus", buses, marginal_price=answer.prices[row])
    into.put("Generator", in_service(network.generators).index, p=pg * base, q=qg * base)
    into.put("Load", in_service(network.loads).index, p=p, q=q)
    into.put(
        "ShuntImpedance", in_service(network.shunt_impedances).index, p=shunt * grid.gs, q=shunt * grid.bs
    )
    flows = compute_flows(answer.problem, grid, answer.x[row][None], y[None])
    _put_branches(into, network, moment, base, flows)


def _put_branches(into: _Writer, network: Any, moment: Any, base: float, flows: Flows) -> None:
    work = network.copy()
    work.calculate_dependent_values()
    place = {bus: i for i, bus in enumerate(work.buses.index)}
    branches = read_branches(work, moment, place, base)
    ends = {}
    for letter in "pq":
        at_from, at_to = (getattr(flows, f"{letter}_{end}")[0] * base for end in ("from", "to"))
        ends[f"{letter}0"] = np.where(branches.turned, at_to, at_from)
        ends[f"{letter}1"] = np.where(branches.turned, at_from, at_to)
    kinds = np.array(branches.component)
    for kind in ("Line", "Transformer"):
        mine = np.flatnonzero(kinds == kind)
        names = [branches.name[i] for i in mine]
        into.put(kind, names, **{key: values[mine] for key, values in ends.items()})


class _Writer:
    """Series of a network, one snapshot of them."""

    def __init__(self, network: Any, moment: Any) -> None:
        self.network, self.moment = network, moment

    def put(self, component: str, names: Any, **series: Floats) -> None:
        """Values of some members of a component; other snapshots and members stay as they are."""
        if not len(names):
            return
        dynamic = self.network.components[component].dynamic
        for attribute, values in series.items():
            before = dynamic[attribute]
            missing = [name for name in names if name not in before.columns]
            table = before.reindex(index=self.network.snapshots, columns=[*before.columns, *missing]).astype(
                float
            )
            table[missing] = table[missing].fillna(0.0)
            table.loc[self.moment, list(names)] = values
            table.columns.name = before.columns.name
            dynamic[attribute] = table


def _check_same(network: Any, moment: Any, grid: Grid) -> None:
    here = read_pypsa(network, snapshot=moment, base_mva=grid.base_mva)
    faults = [
        Fault(key, "differs between the network and the problem that was answered")
        for key in _SAME
        if getattr(here, key).shape != getattr(grid, key).shape
        or not np.allclose(getattr(here, key), getattr(grid, key), rtol=1e-9, atol=1e-12)
    ]
    mine, other = (each.extras for each in (here, grid))
    if (mine is None) != (other is None) or (
        mine is not None and other is not None and not np.array_equal(mine.inject, other.inject)
    ):
        faults.append(Fault("links", "differ between the network and the problem that was answered"))
    if faults:
        raise ProblemError("this network", faults)
