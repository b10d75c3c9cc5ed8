"""pandapower's own electrical model of a net: the PYPOWER case that `runopp` would optimise, on a copy."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.errors import FeasiblyError, MissingExtraError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_POWERS = {
    "load": ("p_mw", "q_mvar", 1.0),
    "sgen": ("p_mw", "q_mvar", -1.0),
    "storage": ("p_mw", "q_mvar", 1.0),
    "ward": ("ps_mw", "qs_mvar", 1.0),
    "xward": ("ps_mw", "qs_mvar", 1.0),
}
"""Tables whose elements draw given power: columns, and the sign that makes it a load."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Elements that draw given power, in the order of the problem's loads; MW and Mvar, loads positive."""

    table: tuple[str, ...]
    """`load`, `sgen`, `storage`, `ward`, `xward`, or `rest` for what pandapower adds up itself (motors)."""
    index: Ints
    """The element's index in its table; -1 for `rest`."""
    bus: Ints
    p: Floats
    q: Floats


@dataclass(frozen=True, eq=False)
class Case:
    """A copy of a net with pandapower's lookups on it, and its PYPOWER case (`ppci`: in service alone)."""

    net: Any
    ppc: dict[str, Any]
    ppci: dict[str, Any]
    bus_id: Ints
    """The first pandapower bus at every bus of the case; numbers above the net's for buses that it has no row for."""
    generators: tuple[tuple[str, int], ...]
    """Table and index of every generator of the case."""
    draws: Draws

    @property
    def base(self) -> float:
        """MVA."""
        return float(self.ppci["baseMVA"])


def load_pandapower(purpose: str) -> ModuleType:
    """The package, or one sentence that says how to install it."""
    with quiet():
        try:
            import pandapower
        except ImportError:
            raise MissingExtraError("pandapower", "pandapower", purpose) from None
    return pandapower


def check_net(net: Any) -> None:
    """Refuse anything but a pandapower net with buses."""
    load_pandapower("a pandapower net")
    from pandapower.auxiliary import pandapowerNet

    if not isinstance(net, pandapowerNet):
        raise FeasiblyError(f"expected a pandapower net, got {type(net).__name__}")
    if not len(net.bus):
        raise FeasiblyError("the pandapower net has no buses")


def convert(net: Any, *, free_slack: bool = False) -> Case:
    """The case that `runopp(net)` optimises; `net` itself is left as it is.

    `free_slack` lets the voltage of external grids move within their buses' limits.

    Raises:
        FeasiblyError: with pandapower's own words, for a net that it cannot convert.
    """
    from pandapower.auxiliary import _add_auxiliary_elements, _init_runopp_options
    from pandapower.opf.validate_opf_input import _check_necessary_opf_parameters
    from pandapower.pd2ppc import _pd2ppc
    from pandapower.results import init_results

    work = copy.deepcopy(net)
    # pandapower builds its objective from these; costs are read here, element by element (see `pandapower.py`).
    work.poly_cost, work.pwl_cost = work.poly_cost.iloc[:0], work.pwl_cost.iloc[:0]
    if free_slack:
        work.ext_grid["controllable"] = True
    elif "controllable" in work.ext_grid:
        work.ext_grid["controllable"] = work.ext_grid["controllable"].fillna(False).astype(bool)
    if "controllable" in work.gen:
        work.gen["controllable"] = work.gen["controllable"].fillna(True).astype(bool)
    said = _Said()
    try:
        with quiet():
            _check_necessary_opf_parameters(work, said)
            # delta=0: what is fixed is fixed, not boxed to 1e-10.
            _init_runopp_options(
                work, calculate_voltage_angles=True, check_connectivity=True, switch_rx_ratio=2, delta=0.0,
                init="flat", numba=False, trafo3w_losses="hv",
            )  # fmt: skip
            _add_auxiliary_elements(work)
            init_results(work, "opf")
            ppc, ppci = _pd2ppc(work)
    except Exception as error:
        words = "; ".join(said.errors) or str(error)
        raise FeasiblyError(f"pandapower cannot make an optimal power flow of this net: {words}") from error
    bus_id = _bus_ids(work, ppci)
    _free_open_ends(work, ppci, bus_id)
    return Case(work, ppc, ppci, bus_id, _generators(work), _draws(work, ppci))


class _Said(logging.Logger):
    """Keeps what pandapower's check calls errors, since its exception only points at the log."""

    def __init__(self) -> None:
        super().__init__("pandapower check")
        self.errors: list[str] = []

    def error(self, msg: object, *args: Any, **kwargs: Any) -> None:
        self.errors.append(" ".join(str(msg).split()))


@contextmanager
def quiet() -> Iterator[None]:
    """Without pandapower's log lines: what matters is raised or kept as a warning of the grid."""
    logger = logging.getLogger("pandapower")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _bus_ids(net: Any, ppci: dict[str, Any]) -> Ints:
    lookup = np.asarray(net._pd2ppc_lookups["bus"])
    count = len(ppci["bus"])
    first = np.full(count, -1, dtype=np.int64)
    for index in net.bus.index.values[::-1]:
        if 0 <= lookup[index] < count:
            first[lookup[index]] = index
    nameless = first < 0  # behind open switches, and the star points of three-winding transformers
    top = int(net.bus.index.max()) + 1
    first[nameless] = top + np.arange(nameless.sum())
    return first


def _free_open_ends(net: Any, ppci: dict[str, Any], bus_id: Ints) -> None:
    """Take limits from the open ends of lines and transformers: the net gives none, pandapower 0.9 to 1.1 p.u.

    Where voltages may be lower than that, they would forbid a switch what no bus forbids.
    """
    from pandapower.pypower.idx_bus import VMAX, VMIN

    lookups = net._pd2ppc_lookups
    inner = np.concatenate([np.zeros(0, dtype=np.int64), *map(np.ravel, lookups["aux"].values())])
    ends = bus_id > net.bus.index.max()
    stars = np.asarray(lookups["bus"])[inner.astype(np.int64)]  # of three-winding transformers, inside wards
    ends[stars[(stars >= 0) & (stars < len(ends))]] = False
    ppci["bus"][ends, VMIN], ppci["bus"][ends, VMAX] = 0.0, 2.0


def left_out(case: Case) -> Iterator[str]:
    """Elements in service that stand at a bus which is not: pandapower takes them out without a word."""
    lookup, count = np.asarray(case.net._pd2ppc_lookups["bus"]), len(case.ppci["bus"])
    for name in ("load", "sgen", "storage", "ward", "xward", "motor", "shunt", "gen", "ext_grid"):
        rows = case.net[name]
        at = lookup[rows["bus"].to_numpy(dtype=np.int64)] if len(rows) else np.zeros(0, dtype=np.int64)
        gone = rows.index[rows["in_service"].to_numpy(dtype=bool) & ((at < 0) | (at >= count))]
        if len(gone):
            shown = ", ".join(map(str, gone[:5])) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
            yield f"{name} {shown}: left out, since no path leads from an external grid to its bus"


def _generators(net: Any) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for key in net._gen_order:
        table = key.removesuffix("_controllable")
        found += [(table, int(index)) for index in net[table].index.values[net._is_elements[key]]]
    return tuple(found)


def _draws(net: Any, ppci: dict[str, Any]) -> Draws:
    """One entry an element in service that is not controlled, and what is left of pandapower's own sums."""
    from pandapower.pypower.idx_bus import PD, QD

    lookup, count = np.asarray(net._pd2ppc_lookups["bus"]), len(ppci["bus"])
    table: list[str] = []
    index, bus, p, q = [], [], [], []
    for name, (p_column, q_column, sign) in _POWERS.items():
        rows = net[name]
        if not len(rows):
            continue
        kept = np.asarray(net._is_elements[name], dtype=bool)
        at = lookup[rows["bus"].values]
        kept &= (at >= 0) & (at < count)
        scaling = rows["scaling"].values if "scaling" in rows else np.ones(len(rows))
        active, reactive = (powers(name, rows, column) * scaling * sign for column in (p_column, q_column))
        table += [name] * int(kept.sum())
        index.append(rows.index.values[kept])
        bus.append(at[kept])
        p.append(active[kept])
        q.append(reactive[kept])
    places = np.concatenate([*bus, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    left = ppci["bus"][:, [PD, QD]].astype(np.float64).copy()
    np.subtract.at(left[:, 0], places, np.concatenate([*p, np.zeros(0)]))
    np.subtract.at(left[:, 1], places, np.concatenate([*q, np.zeros(0)]))
    rest = np.flatnonzero(np.abs(left).max(axis=1) > 1e-9)
    return Draws(
        (*table, *["rest"] * len(rest)),
        np.concatenate([*index, np.full(len(rest), -1)]).astype(np.int64),
        np.concatenate([places, rest]).astype(np.int64),
        np.concatenate([*p, left[rest, 0]]),
        np.concatenate([*q, left[rest, 1]]),
    )


def powers(table: str, rows: Any, column: str) -> Floats:
    """A column of powers; static generators stay within their limits, as in pandapower."""
    values = rows[column].astype(float)
    if table == "sgen":
        for limit, bound in (("min", "lower"), ("max", "upper")):
            if f"{limit}_{column}" in rows:
                values = values.clip(**{bound: rows[f"{limit}_{column}"]})
    return np.asarray(values, dtype=np.float64)
