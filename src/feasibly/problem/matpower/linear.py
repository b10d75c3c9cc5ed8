"""MATPOWER's linear extensions: constraints of the user's own, reserves, limits on flows between areas.

MATPOWER obeys `A, l, u` always, and reserves and interface limits once they are switched on (`toggle_reserves`,
`toggle_iflims`). A file that holds them means them, so all three are modelled here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feasibly.problem._gather import Gathering, Numbered
from feasibly.problem.errors import Fault
from feasibly.problem.matpower.tokens import Matrix

TABLES = ("A", "l", "u", "reserves", "if")


@dataclass(frozen=True)
class Linear:
    """The tables as they stand in the file, for all of its buses and generators in file order."""

    buses: Sequence[int]
    generators: int
    tables: Mapping[str, Any]
    where: Mapping[str, str]
    """What to call a table in messages: its name and line."""

    def join(
        self, gathering: Gathering, generators: Numbered, branches: Numbered, place: Mapping[int, int],
        faults: list[Fault],
    ) -> None:  # fmt: skip
        """Add every row to the problem that the elements in service make."""
        units = {row: i for i, (row, _) in enumerate(generators)}
        if "A" in self.tables:
            self._user(gathering, units, place, faults)
        if "reserves" in self.tables:
            self._reserves(gathering, generators, units, faults)
        if "if" in self.tables:
            self._interfaces(gathering, branches, place, faults)

    def _user(
        self, gathering: Gathering, units: Mapping[int, int], place: Mapping[int, int], faults: list[Fault]
    ) -> None:
        """`l <= A [va; vm; pg; qg] <= u`, radians and per unit, as in MATPOWER; what is out of service has no part."""
        where, n, g = self.where["A"], len(self.buses), self.generators
        matrix = self.tables["A"]
        rows, width = matrix.shape
        if width != 2 * n + 2 * g:
            what = f"has {width} columns; without variables of its own it needs {2 * n + 2 * g}, for va, vm, pg and qg"
            faults.append(Fault(where, what))
            return
        ends = []
        for name, absent in (("l", -np.inf), ("u", np.inf)):
            given = self.tables.get(name)
            values = np.full(rows, absent) if given is None else np.asarray(given, dtype=np.float64).ravel()
            if len(values) != rows or np.isnan(values).any():
                faults.append(
                    Fault(self.where.get(name, name), f"needs a number for each of the {rows} rows of A")
                )
                return
            ends.append(np.where(np.abs(values) >= 1e10, np.copysign(np.inf, values), values))
        if not np.isfinite(matrix).all():
            faults.append(Fault(where, "every entry must be a finite number"))
            return
        tokens: list[Any] = [("va", place[b]) if b in place else None for b in self.buses]
        tokens += [("vm", place[b]) if b in place else None for b in self.buses]
        tokens += [("pg", units[i]) if i in units else None for i in range(1, g + 1)]
        tokens += [("qg", units[i]) if i in units else None for i in range(1, g + 1)]
        for row in range(rows):
            terms = {t: float(v) for t, v in zip(tokens, matrix[row], strict=True) if v and t is not None}
            low, high = float(ends[0][row]), float(ends[1][row])
            if low > high or not (terms or low <= 0.0 <= high):
                faults.append(
                    Fault(f"{where}, row {row + 1}", "cannot be kept: its limits are crossed or it is empty")
                )
            elif terms:
                self._between(gathering, "user constraint", row + 1, terms, low, high)

    def _between(
        self, gathering: Gathering, kind: str, number: int, terms: dict[Any, float], low: float, high: float
    ) -> None:
        """`low <= terms <= high`, rows brought to a length of one so that a violation is one of the problem's units."""
        size = float(np.linalg.norm(list(terms.values()))) if kind == "user constraint" else 1.0
        terms = {token: value / size for token, value in terms.items()}
        if low == high and kind == "user constraint":
            gathering.equal.append((kind, number, terms, low / size))
            return
        if np.isfinite(high):
            gathering.less.append((kind, number, terms, high / size))
        if np.isfinite(low):
            gathering.less.append((kind, number, {t: -v for t, v in terms.items()}, -low / size))

    def _reserves(
        self, gathering: Gathering, generators: Numbered, units: Mapping[int, int], faults: list[Fault]
    ) -> None:
        """Each zone holds what it must; a unit's reserve fits above its output, below its ramp and quantity."""
        where, held = self.where["reserves"], self.tables["reserves"]
        parts = {key: _numbers(held.get(key)) for key in ("zones", "req", "cost", "qty")}
        zones, need, cost, most = (parts[key] for key in ("zones", "req", "cost", "qty"))
        if zones is None or need is None or cost is None or zones.shape != (need.size, self.generators):
            what = f"needs zones (a row a zone, {self.generators} columns), req and cost, all numbers"
            faults.append(Fault(where, what))
            return
        able = np.flatnonzero(zones.any(axis=0)) + 1
        lists = []
        for key, values in (("cost", cost), ("qty", most)):
            if values is None:
                lists.append(np.full(self.generators, np.inf))
            elif values.size in (self.generators, len(able)):
                full = np.zeros(self.generators)
                full[slice(None) if values.size == self.generators else able - 1] = values.ravel()
                lists.append(full)
            else:
                faults.append(Fault(where, f"{key} needs {len(able)} values, one a generator of a zone"))
                return
        base, variables = gathering.base, {}
        for row in (row for row in able.tolist() if row in units):
            unit = generators[units[row]][1]
            limit = min(float(lists[1][row - 1]), float(unit.get("ramp_10") or np.inf))
            reserve = gathering.variable("reserve", row, 0.0, limit / base, 0.0)
            gathering.prices.append((reserve, 0.0, float(lists[0][row - 1]) * base, 0.0))
            terms = {("pg", units[row]): 1.0, reserve: 1.0}
            if np.isfinite(unit["pmax"]):
                gathering.less.append(("reserve", row, terms, unit["pmax"] / base))
            variables[row] = reserve
        for zone, (members, least) in enumerate(zip(zones, need.ravel(), strict=True), start=1):
            terms = {variables[row]: -float(members[row - 1]) for row in variables if members[row - 1]}
            if terms or least > 0:
                gathering.less.append(("reserve zone", zone, terms, -float(least) / base))

    def _interfaces(
        self, gathering: Gathering, branches: Numbered, place: Mapping[int, int], faults: list[Fault]
    ) -> None:
        """Flows of the DC approximation, which is what MATPOWER limits: `(va_from - va_to - shift) / (x tap)`."""
        where, held = self.where["if"], self.tables["if"]
        members, limits = (_numbers(held.get(key)) for key in ("map", "lims"))
        if members is None or limits is None or members.shape[1] != 2 or limits.shape[1] != 3:
            faults.append(
                Fault(where, "needs map (interface, branch) and lims (interface, lower, upper), all numbers")
            )
            return
        rows, base = dict(branches), gathering.base
        for number, low, high in limits.tolist():
            terms: dict[Any, float] = {}
            constant, found = 0.0, False
            for _, signed in members[members[:, 0] == number]:
                branch = rows.get(abs(int(signed)))
                if branch is None:
                    continue
                if branch["x"] == 0.0:
                    faults.append(Fault(where, f"branch {abs(int(signed))} has no reactance, so no DC flow"))
                    continue
                found = True
                slope = np.sign(signed) / (branch["x"] * (branch["tap"] or 1.0))
                for bus, sign in ((branch["from_id"], 1.0), (branch["to_id"], -1.0)):
                    token = ("va", place[bus])
                    terms[token] = terms.get(token, 0.0) + sign * slope
                constant -= slope * np.deg2rad(branch["shift"])
            if not found or low > high:
                faults.append(
                    Fault(f"{where}, interface {number:g}", "has no branch in service, or crossed limits")
                )
                continue
            self._between(
                gathering,
                "interface limit",
                int(number),
                terms,
                low / base - constant,
                high / base - constant,
            )


def _numbers(value: Any) -> Matrix | None:
    """A table of numbers, or nothing."""
    return value if isinstance(value, np.ndarray) and value.size and not np.isnan(value).any() else None
