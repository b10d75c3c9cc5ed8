"""What a pandapower net pays for, and its DC lines: rows beside the generators of its case."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop._pandapower_case import Case
from feasibly.problem._gather import Gathering
from feasibly.problem.errors import Fault

Floats = NDArray[np.float64]

_NO_LIMIT = 1e8
"""pandapower writes 1e9 MW where there is no limit."""


def read_costs(net: Any, case: Case, beyond: Gathering, faults: list[Fault], warnings: list[str]) -> Floats:
    """Columns c2, c1, c0 in MW; costs with corners or of reactive power join `beyond`.

    Without any cost in the net every MW costs 1, as in pandapower.
    """
    from pandapower.pypower import idx_gen

    gen, base = case.ppci["gen"], case.base
    found = np.zeros((len(case.generators), 3))
    if not len(net.poly_cost) and not len(net.pwl_cost):
        found[:, 1] = 1.0
        warnings.append("the net has no costs; every MW costs 1, as in pandapower")
        return found
    place = {key: i for i, key in enumerate(case.generators)}
    ends = dc_ends(case)
    seen = set()

    def located(row: Any, power: str) -> tuple[int, str, float] | None:
        """The generator, what to call it, and the sign that pandapower gives its cost."""
        key = (str(row["et"]), int(row["element"]))
        where = f"{key[0]} {key[1]}"
        if key[0] not in net or key[1] not in net[key[0]].index:
            faults.append(Fault(where, "has a cost, and there is no such element"))
            return None
        if key[0] == "dcline" and key[1] in ends:
            key = ("gen", ends[key[1]][1])
        if key not in place:
            return None  # out of service or not controllable: pandapower has no variable for it either
        if (key, power) in seen:
            faults.append(Fault(where, "has several costs"))
        seen.add((key, power))
        # pandapower turns the whole cost of a load round, not its argument.
        turned = str(row["et"]) in ("load", "storage", "dcline")
        return place[key], where, -1.0 if turned else 1.0

    def span(i: int, power: str) -> tuple[float, float]:
        low, high = (idx_gen.PMIN, idx_gen.PMAX) if power == "p" else (idx_gen.QMIN, idx_gen.QMAX)
        return float(open_limits(gen[i, low]) / base), float(open_limits(gen[i, high]) / base)

    for _, row in net.poly_cost.iterrows():
        at = located(row, "p")
        if at is None:
            continue
        i, where, sign = at
        terms = [row[c] for c in ("cp2_eur_per_mw2", "cp1_eur_per_mw", "cp0_eur")]
        reactive = [row[c] for c in ("cq2_eur_per_mvar2", "cq1_eur_per_mvar", "cq0_eur")]
        if not np.isfinite([*terms, *reactive]).all():
            faults.append(Fault(where, "every cost must be a finite number"))
            continue
        found[i] = np.array(terms, dtype=np.float64) * sign
        if any(reactive[:2]):  # pandapower leaves out constants that stand alone
            cost = {"model": 2, "coeffs": [sign * float(term) for term in reactive]}
            beyond.cost(
                ("qg", i), "cost_qg", int(case.bus_id[int(gen[i, idx_gen.GEN_BUS])]), cost, where, faults, span(i, "q"),
                "reactive power ",
            )  # fmt: skip
    for _, row in net.pwl_cost.iterrows():
        power = str(row["power_type"])
        at = located(row, power)
        if at is None:
            continue
        i, where, sign = at
        points = _corner_points(row["points"], sign)
        if points is None:
            faults.append(Fault(where, "the areas of its piecewise linear cost must follow one another"))
            continue
        cost = {"model": 1, "ncost": len(points) // 2, "coeffs": points}
        what = "" if power == "p" else "reactive power "
        beyond.cost(
            (f"{power}g", i), f"cost_{power}g", int(case.bus_id[int(gen[i, idx_gen.GEN_BUS])]), cost, where, faults,
            span(i, power), what,
        )  # fmt: skip
    return found


def _corner_points(areas: Any, sign: float) -> list[float] | None:
    """Power and cost at every corner, from areas `[from, to, slope]`; the first lies on a line through zero."""
    points: list[float] = []
    for low, high, slope in areas:
        if not points:
            points = [float(low), float(low) * float(slope) * sign]
        elif points[-2] != float(low):
            return None
        points += [float(high), points[-1] + (float(high) - float(low)) * float(slope) * sign]
    return points or None


def dc_ends(case: Case) -> dict[int, tuple[int, int]]:
    """The generators that pandapower puts in place of every DC line, by its index: at the to bus, at the from bus."""
    lines, gens = case.net.dcline.index, case.net.gen.index
    added = gens[len(gens) - 2 * len(lines) :]
    return {int(line): (int(added[2 * k]), int(added[2 * k + 1])) for k, line in enumerate(lines)}


def join_dc_lines(net: Any, case: Case, beyond: Gathering, fixed: bool, faults: list[Fault]) -> None:
    """What arrives is what was drawn, less losses: draw = (1 + loss_percent / 100) * arrives + loss_mw, as in `runopp`.

    Of a line whose set point is negative, the to bus draws.
    """
    place = {key: i for i, key in enumerate(case.generators)}
    for index, (to_gen, from_gen) in dc_ends(case).items():
        line = net.dcline.loc[index]
        if not bool(line["in_service"]) or ("gen", to_gen) not in place or ("gen", from_gen) not in place:
            continue
        where = f"dcline {index}"
        share, loss, given = (float(line[key]) for key in ("loss_percent", "loss_mw", "p_mw"))
        if not np.isfinite([share, loss, given]).all() or share <= -100.0:
            faults.append(Fault(where, "p_mw, loss_percent and loss_mw must be finite numbers"))
            continue
        ends = [place["gen", to_gen], place["gen", from_gen]]
        arrives, draws = ends if given > 0 else ends[::-1]
        terms = {("pg", arrives): 1.0 + share / 100.0, ("pg", draws): 1.0}
        beyond.equal.append(("DC line losses", int(index), terms, -loss / case.base))
        if fixed:
            beyond.equal.append(
                ("DC line set point", int(index), {("pg", draws): 1.0}, -abs(given) / case.base)
            )


def open_limits(limits: Floats) -> Floats:
    """Limits with infinities where pandapower means none."""
    return np.where(np.abs(limits) >= _NO_LIMIT, np.copysign(np.inf, limits), limits)
