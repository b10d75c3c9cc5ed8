"""Two bounds on one linear expression are one row with two sides, as a modeller would write it by hand.

A `Problem` has one kind of inequality, so `low <= a'y <= high` arrives as two rows, and limits of parallel
branches as two more. IPOPT keeps a slack and a row in its linear system for each.
"""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np

from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array


class Ranges:
    """The rows of a model with linear inequalities joined where they bound the same expression.

    Attributes:
        nlp: `(y, x) -> (objective, rows)`: equalities, inequalities that were left alone, joined ones.
    """

    def __init__(self, model: NlpModel) -> None:
        y, x = casadi.SX.sym("y", len(model.lower)), casadi.SX.sym("x", len(model.nominal))
        self._model = model
        objective, rows = model.nlp(y, x)
        ne, self._ni = model.n_equalities, model.n_inequalities
        groups = _find_groups(rows[ne:, 0], y) if self._ni else []
        self._group = np.array([k for k, members in enumerate(groups) for _ in members], dtype=int)
        self._row = np.array([row for members in groups for row, _ in members], dtype=int)
        self._sign = np.array([sign for members in groups for _, sign in members], dtype=np.float64)
        self._alone = np.setdiff1d(np.arange(self._ni), self._row)
        self._sizes = ne, len(self._alone), len(groups)
        self._heads = heads = np.unique(self._group, return_index=True)[1].tolist()
        # What is left of a linear row at y = 0 depends on x alone, and goes to the other side.
        members = rows[(ne + self._row).tolist(), 0]
        rest = casadi.substitute(members, y, casadi.DM.zeros(len(model.lower)))
        self._rest = casadi.Function("rest", [x], [casadi.densify(rest)])
        linear = casadi.DM(self._sign[heads]) * (members[heads, 0] - rest[heads, 0])
        kept = rows[[*range(ne), *(ne + self._alone).tolist()], 0]
        every = casadi.vertcat(kept, linear) if groups else kept
        self.nlp = casadi.Function("nlp", [y, x], [objective, every], ["x", "p"], ["f", "g"])

    def derivatives(self) -> dict[str, Any]:
        """What IPOPT asks for, from the derivatives that the model has."""
        model = self._model
        ne, alone, joined = self._sizes
        sizes = len(model.lower), len(model.nominal), 1, ne + alone + joined
        y, x, weight, multipliers = (
            casadi.MX.sym(name, size) for name, size in zip(("y", "x", "lam_f", "lam_g"), sizes, strict=True)
        )
        objective, rows = self.nlp(y, x)
        z = casadi.MX.zeros(self._ni)
        if alone:
            z[self._alone.tolist()] = multipliers[
                ne : ne + alone, 0
            ]  # joined rows are linear and do not curve
        copies, nothing = model.copies(y), (1.0, np.zeros(ne), np.zeros(self._ni))
        curvature = model.unscaled_second_order(y, copies, x, weight, multipliers[:ne, 0], z)[5]
        equality, inequality, _ = model.unscaled_second_order(y, copies, x, *nothing)[3:]
        parts = [equality, inequality[self._alone.tolist(), :]]
        if joined:
            signs = casadi.diag(casadi.DM(self._sign[self._heads]))
            parts.append(casadi.mtimes(signs, inequality[self._row[self._heads].tolist(), :]))
        gradient = model.unscaled_first_order(y, copies, x, *nothing)[2]
        names = ["x", "p"]
        return {
            "grad_f": casadi.Function("grad_f", [y, x], [objective, gradient], names, ["f", "grad_f"]),
            "jac_g": casadi.Function("jac_g", [y, x], [rows, casadi.vertcat(*parts)], names, ["g", "jac_g"]),
            "hess_lag": casadi.Function(
                "hess_lag",
                [y, x, weight, multipliers],
                [casadi.triu(curvature)],
                [*names, "lam_f", "lam_g"],
                ["hess"],
            ),
        }

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of the rows for one input."""
        ne, alone, joined = self._sizes
        lower, upper = np.full(joined, -np.inf), np.full(joined, np.inf)
        ends = self._ends(x)
        above = self._sign > 0.0
        np.minimum.at(upper, self._group[above], ends[above])
        np.maximum.at(lower, self._group[~above], ends[~above])
        open_ = np.full(alone, -np.inf)
        return np.concatenate([np.zeros(ne), open_, lower]), np.concatenate([np.zeros(ne + alone), upper])

    def _ends(self, x: Array) -> Array:
        """Where each joined row bounds its expression, from above or below by its sign."""
        return -self._sign * np.asarray(self._rest(x)).ravel() if len(self._sign) else np.zeros(0)

    def join(self, equality: Array, inequality: Array) -> Array:
        """Multipliers of a model's rows as those of the joined rows."""
        sums = np.zeros(self._sizes[2])
        np.add.at(sums, self._group, self._sign * inequality[self._row])
        return np.concatenate([equality, inequality[self._alone], sums])

    def split(self, x: Array, multipliers: Array) -> tuple[Array, Array]:
        """Multipliers of the joined rows as a model's, each given to the member that is tight."""
        equality, alone, joined = np.split(multipliers, np.cumsum(self._sizes[:2]))
        inequality = np.zeros(self._ni)
        inequality[self._alone] = np.maximum(alone, 0.0)
        tightness = self._sign * self._ends(x)
        for sign in (1.0, -1.0):
            side = np.flatnonzero(self._sign == sign)
            # By group, the tightest first: that one is what `unique` finds.
            side = side[np.lexsort((tightness[side], self._group[side]))]
            group, first = np.unique(self._group[side], return_index=True)
            inequality[self._row[side[first]]] = np.maximum(sign * joined[group], 0.0)
        return equality, inequality


def _find_groups(inequality: Any, y: Any) -> list[list[tuple[int, float]]]:
    """Rows `sign * a'y + c(x) <= 0` that share `a`, as lists of `(row, sign)`."""
    curved = np.asarray(casadi.which_depends(inequality, y, 2, True), dtype=bool)
    linear = np.flatnonzero(~curved)
    if not len(linear):
        return []
    gradients = casadi.jacobian(inequality[linear.tolist(), 0], y)
    if not gradients.is_constant():  # coefficients that change with x
        return []
    matrix = casadi.DM(gradients).sparse().tocsr()
    found: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    for place, row in enumerate(linear.tolist()):
        entries = slice(matrix.indptr[place], matrix.indptr[place + 1])
        columns, values = matrix.indices[entries], matrix.data[entries]
        kept = values != 0.0
        if kept.any():
            sign = float(np.sign(values[kept][0]))
            key = (*columns[kept].tolist(), *(sign * values[kept]).tolist())
            found.setdefault(key, []).append((row, sign))
    return [members for members in found.values() if len(members) > 1]
