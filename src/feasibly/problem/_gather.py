"""From the elements of a file to `Extras`: DC lines, branches without impedance, costs with corners, curves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from feasibly.problem.errors import Fault, argument
from feasibly.problem.extras import BLOCKS, EQUALITIES, INEQUALITIES, Extras

Element = Mapping[str, Any]
Numbered = Sequence[tuple[int, Element]]


class Gathering:
    """Collects variables and rows by name, and puts them in order at the end.

    Columns are tokens until then: `("pg", i)`, `("qg", i)`, `("vm", i)`, `("va", i)` for generators and buses, and what
    `variable` hands back for further outputs.
    """

    def __init__(self, base: float, generators: int, buses: int) -> None:
        self.base = base
        self.sizes = {"pg": 0, "qg": generators, "vm": 2 * generators, "va": 2 * generators + buses}
        self.first = 2 * generators + 2 * buses
        self.buses = buses
        self.variables: list[tuple[int, int, float, float, float]] = []
        self.prices: list[tuple[Any, float, float, float]] = []
        self.injected: list[tuple[int, Any, float]] = []
        self.equal: list[tuple[str, int, dict[Any, float], float]] = []
        self.less: list[tuple[str, int, dict[Any, float], float]] = []
        self.discs: list[tuple[Any, Any, float, int]] = []
        self.bent: list[str] = []

    def variable(self, block: str, number: int, low: float, high: float, start: float | None = None) -> Any:
        """A further output; what comes back stands for it in rows."""
        if start is None:
            start = (low + high) / 2.0 if np.isfinite(low) and np.isfinite(high) else 0.0
        self.variables.append((BLOCKS.index(block), number, low, high, float(np.clip(start, low, high))))
        return ("u", len(self.variables) - 1)

    def finish(self) -> Extras | None:
        """Everything in order, or `None` where there is nothing."""
        if not (self.variables or self.prices or self.injected or self.equal or self.less):
            return None
        order = sorted(range(len(self.variables)), key=lambda i: (self.variables[i][0], i))
        place = {old: self.first + new for new, old in enumerate(order)}

        def at(token: Any) -> int:
            return place[token[1]] if token[0] == "u" else self.sizes[token[0]] + int(token[1])

        def table(rows: Sequence[tuple[str, int, dict[Any, float], float]]) -> np.ndarray:
            found = [(i, at(t), v) for i, (_, _, terms, _) in enumerate(rows) for t, v in terms.items()]
            return np.array(found, dtype=np.float64).reshape(-1, 3)

        kept = [self.variables[i] for i in order]
        kind, number, low, high, start = (
            (list(part) for part in zip(*kept, strict=True)) if kept else ([],) * 5
        )
        return Extras.from_arrays(
            {
                "extra_kind": np.array(kind, dtype=np.int64),
                "extra_number": np.array(number, dtype=np.int64),
                "extra_low": np.array(low, dtype=np.float64),
                "extra_high": np.array(high, dtype=np.float64),
                "extra_start": np.array(start, dtype=np.float64),
                "extra_price_at": np.array([at(p[0]) for p in self.prices], dtype=np.int64),
                "extra_price": np.array([p[1:] for p in self.prices], dtype=np.float64).reshape(-1, 3),
                "extra_inject": np.array(
                    [(r, at(t), v) for r, t, v in self.injected], dtype=np.float64
                ).reshape(-1, 3),
                "extra_equal": table(self.equal),
                "extra_equal_to": np.array([row[3] for row in self.equal], dtype=np.float64),
                "extra_equal_kind": np.array(
                    [EQUALITIES.index(row[0]) for row in self.equal], dtype=np.int64
                ),
                "extra_equal_number": np.array([row[1] for row in self.equal], dtype=np.int64),
                "extra_less": table(self.less),
                "extra_less_than": np.array([row[3] for row in self.less], dtype=np.float64),
                "extra_less_kind": np.array(
                    [INEQUALITIES.index(row[0]) for row in self.less], dtype=np.int64
                ),
                "extra_less_number": np.array([row[1] for row in self.less], dtype=np.int64),
                "extra_disc": np.array(
                    [(at(p), at(q), most) for p, q, most, _ in self.discs], dtype=np.float64
                ).reshape(-1, 3),
                "extra_disc_number": np.array([disc[3] for disc in self.discs], dtype=np.int64),
            }
        )

    # ---- what files hold -------------------------------------------------------------------------------

    def dc_lines(self, lines: Numbered, place: Mapping[int, int], fixed: bool, faults: list[Fault]) -> None:
        """Power leaves the grid at one bus and arrives at another less `loss0 + loss1 * p`, as MATPOWER has it."""
        base = self.base
        for row, line in lines:
            where = f"DC line {row} ({line['from_id']}-{line['to_id']})"
            numbers = ("pmin", "pmax", "qminf", "qmaxf", "qmint", "qmaxt", "loss0", "loss1", "pf")
            if any(not isinstance(line[key], Real) or line[key] != line[key] for key in numbers):
                faults.append(Fault(where, "its limits, losses and set point must all be numbers"))
                continue
            for low, high, what in (("pmin", "pmax", "active"), ("qminf", "qmaxf", "from-side reactive"),
                                    ("qmint", "qmaxt", "to-side reactive")):  # fmt: skip
                if line[low] > line[high]:
                    faults.append(
                        Fault(where, f"{what} power limits are crossed: {line[low]:g} > {line[high]:g}")
                    )
            if not line["loss1"] < 1.0:
                faults.append(Fault(where, f"it loses all that it carries: loss1 = {line['loss1']:g}"))
            low, high = line["pmin"], line["pmax"]
            # A limit on flow in the positive direction holds at the from bus, in the other at the to bus.
            ends = [(max(low, 0.0) if low >= 0 else -np.inf, high if high >= 0 else np.inf),
                    (low if low < 0 else -np.inf, high if high < 0 else np.inf)]  # fmt: skip
            if fixed:
                ends = [(line["pf"], line["pf"]), (-np.inf, np.inf)]
            f, t = place[line["from_id"]], place[line["to_id"]]
            set_point = float(line["pf"]) / base
            p_from = self.variable("pdc_from", row, ends[0][0] / base, ends[0][1] / base, set_point)
            arrives = (1.0 - line["loss1"]) * set_point - line["loss0"] / base
            p_to = self.variable("pdc_to", row, ends[1][0] / base, ends[1][1] / base, arrives)
            q_from = self.variable("qdc_from", row, line["qminf"] / base, line["qmaxf"] / base)
            q_to = self.variable("qdc_to", row, line["qmint"] / base, line["qmaxt"] / base)
            n = self.buses
            self.injected += [(f, p_from, -1.0), (t, p_to, 1.0), (n + f, q_from, 1.0), (n + t, q_to, 1.0)]
            terms = {p_from: 1.0 - line["loss1"], p_to: -1.0}
            self.equal.append(("DC line losses", row, terms, line["loss0"] / base))
            if line.get("cost") is not None:
                self.cost(p_from, "cost_pdc", row, line["cost"], where, faults, (low / base, high / base))

    def links(self, branches: Numbered, place: Mapping[int, int]) -> None:
        """Branches without impedance: voltages at their ends agree, and what flows is free."""
        for row, b in branches:
            f, t = place[b["from_id"]], place[b["to_id"]]
            ratio, n = b["tap"] or 1.0, self.buses
            most = b["rate_a"] / self.base if b["rate_a"] else np.inf
            p, q = (self.variable(block, row, -most, most, 0.0) for block in ("plink", "qlink"))
            self.injected += [(f, p, -1.0), (t, p, 1.0), (n + f, q, -1.0), (n + t, q, 1.0)]
            self.equal.append(("link voltage", row, {("vm", f): 1.0, ("vm", t): -ratio}, 0.0))
            self.equal.append(("link angle", row, {("va", f): 1.0, ("va", t): -1.0}, np.deg2rad(b["shift"])))
            if np.isfinite(most):
                self.discs.append((p, q, most, row))

    def generators(
        self, generators: Numbered, faults: list[Fault], *, matpower: bool, reactive: bool
    ) -> None:
        """Costs of reactive power, and in MATPOWER's files capability curves and loads of constant power factor."""
        for i, (row, g) in enumerate(generators):
            where = f"generator {row} (bus {g['bus']})"
            cost = g.get("reactive_cost") if reactive else None
            if cost is not None and any(cost["coeffs"]):
                span = (g["qmin"] / self.base, g["qmax"] / self.base)
                self.cost(("qg", i), "cost_qg", g["bus"], cost, where, faults, span, "reactive power ")
            if matpower:
                self.curves(i, row, g, where, faults)
                self.power_factor(i, row, g)

    def curves(self, i: int, row: int, g: Element, where: str, faults: list[Fault]) -> None:
        """The upper and lower edge between (Pc1, Qc1) and (Pc2, Qc2), where they cut into the box of limits."""
        if len(g.get("caps") or ()) < 6 or not any(g["caps"][:6]):
            return
        p1, p2, low1, high1, low2, high2 = (float(v) for v in g["caps"][:6])
        if p1 == p2:
            return
        if not np.isfinite([p1, p2, low1, high1, low2, high2]).all() or p1 > p2:
            faults.append(Fault(where, "its capability curve needs six numbers with Pc1 below Pc2"))
            return

        def edge(at: float, first: float, last: float) -> float:
            return first + (at - p1) * (last - first) / (p2 - p1)

        ends = (g["pmin"], g["pmax"])
        if any(edge(end, high1, high2) < g["qmax"] for end in ends):
            self.half_plane(i, row, high1 - high2, p2 - p1, (high1 - high2) * p1 + (p2 - p1) * high1)
        if any(edge(end, low1, low2) > g["qmin"] for end in ends):
            self.half_plane(i, row, low2 - low1, p1 - p2, (low2 - low1) * p1 + (p1 - p2) * low1)

    def half_plane(self, i: int, row: int, a: float, b: float, most: float) -> None:
        size = float(np.hypot(a, b))
        self.less.append(
            ("capability curve", row, {("pg", i): a / size, ("qg", i): b / size}, most / size / self.base)
        )

    def power_factor(self, i: int, row: int, g: Element) -> None:
        """A dispatchable load (Pmin < 0 = Pmax) keeps the ratio of Pmin to its one limit on Q that is not zero."""
        if not (g["pmin"] < 0.0 == g["pmax"]) or (g["qmin"] == 0.0) == (g["qmax"] == 0.0):
            return
        angle = np.arctan2(g["qmax"] + g["qmin"], g["pmin"])
        terms = {("pg", i): float(np.sin(angle)), ("qg", i): float(-np.cos(angle))}
        self.equal.append(("power factor", row, terms, 0.0))

    def cost(
        self, variable: Any, block: str, number: int, cost: Element, where: str, faults: list[Fault],
        span: tuple[float, float], what: str = "",
    ) -> None:  # fmt: skip
        """What a variable costs, by polynomial or by corners."""
        base = self.base
        if cost["model"] == 1:
            lines = corners(cost, f"{what}cost", where, faults)
            if lines is not None:
                self.corners(variable, block, number, lines, span)
            return
        terms = [float(c) for c in cost["coeffs"]]
        if not np.isfinite(terms).all():
            faults.append(Fault(where, f"has a {what}cost that is not a finite number"))
        elif any(terms[:-3]):
            faults.append(Fault(where, f"has a {what}cost of a degree above 2, which is not modelled"))
        else:
            c2, c1, c0 = [0.0] * (3 - len(terms[-3:])) + terms[-3:]
            self.curvature(f"{where}, {what}".rstrip(", "), c2, c1, (span[0] * base, span[1] * base))
            self.prices.append((variable, c2 * base**2, c1 * base, c0))

    def curvature(self, where: str, c2: float, c1: float, span: tuple[float, float]) -> None:
        """Keep in mind whose cost gets flatter as it makes more, by more than rounding explains; MW."""
        if c2 < 0.0 and span[0] < span[1]:
            fall = -2.0 * c2 * (span[1] - span[0])
            if not np.isfinite(fall) or fall > ROUNDING * max(abs(2.0 * c2 * end + c1) for end in span):
                self.bent.append(where)

    def notes(self) -> list[str]:
        """What a reader should know of the costs; empty for most grids."""
        if not self.bent:
            return []
        listed = ", ".join(self.bent[:NAMED]) + (
            f" and {len(self.bent) - NAMED} more" if len(self.bent) > NAMED else ""
        )
        return [
            f"{listed}: the cost is concave (c2 is negative), so that an optimum that is found may be local"
        ]

    def corners(
        self,
        variable: Any,
        block: str,
        number: int,
        lines: list[tuple[float, float]],
        span: tuple[float, float],
    ) -> None:
        """The least that lies above every line: one further output, in units that keep its rows near one."""
        base = self.base
        if len(lines) == 1:
            self.prices.append((variable, 0.0, lines[0][0] * base, lines[0][1]))
            return
        money = max(abs(slope) for slope, _ in lines) * base
        ends = [end for end in span if np.isfinite(end)]
        values = [max(slope * base * end + offset for slope, offset in lines) / money for end in ends]
        # The least value of a convex function may lie between the ends: where two lines meet.
        meets = [
            max(s * (c - d) / (b - a) + o for s, o in lines) / money
            for (a, c), (b, d) in itertools.pairwise(lines)
        ]
        low, high = min([*values, *meets]), max([*values, *meets])
        room = 1.0 + 0.1 * (high - low)
        total = self.variable(block, number, low - room, high + room)
        self.prices.append((total, 0.0, money, 0.0))
        for slope, offset in lines:
            self.less.append(
                ("cost segment", number, {variable: slope * base / money, total: -1.0}, -offset / money)
            )


NAMED = 8
"""So many elements are named in a note; how many more there are is said."""
ROUNDING = 1e-5
"""A slope may fall by so much of the largest one, as points of few digits make it; the fall is then left out."""


def corners(cost: Element, what: str, where: str, faults: list[Fault]) -> list[tuple[float, float]] | None:
    """Slope ($/MWh) and offset ($/h) of every segment of a convex piecewise-linear cost, equal slopes as one."""
    numbers = np.array(cost["coeffs"][: 2 * int(cost["ncost"])], dtype=np.float64)
    points = numbers[: len(numbers) // 2 * 2].reshape(-1, 2)
    if not np.isfinite(points).all() or not 2 <= len(points) == int(cost["ncost"]):
        faults.append(Fault(where, f"its piecewise-linear {what} needs two points or more, all numbers"))
        return None
    step = np.diff(points, axis=0)
    if (step[:, 0] <= 0.0).any():
        faults.append(
            Fault(where, f"the points of its piecewise-linear {what} must go from less power to more")
        )
        return None
    slopes = step[:, 1] / step[:, 0]
    scale = max(float(np.abs(slopes).max()), 1e-12)
    if (np.diff(slopes) < -ROUNDING * scale).any():
        at = int(np.argmin(np.diff(slopes))) + 1
        faults.append(
            Fault(where, f"its piecewise-linear {what} is not convex: its slope falls at {points[at, 0]:g} MW "
                  f"from {slopes[at - 1]:g} to {slopes[at]:g}; give a convex one with {argument('costs')}")
        )  # fmt: skip
        return None
    kept: list[tuple[float, float]] = []
    for slope, (x, y) in zip(slopes.tolist(), points[:-1].tolist(), strict=True):
        if not kept or slope > kept[-1][0] + 1e-9 * scale:
            kept.append((slope, y - slope * x))
    return kept
