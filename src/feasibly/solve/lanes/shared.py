"""What elastic lanes and others have in common: the program of derivatives, and the analysed pattern of the matrix."""

from __future__ import annotations

import casadi
import numpy as np

from feasibly.solve._newton import Newton
from feasibly.solve.lanes.factors import analyse
from feasibly.solve.lanes.program import Layout, entries, program


class SharedPrograms:
    """Of one model: its derivatives as a program, and the symbolic analysis of the condensed matrix.

    Attributes:
        newton, layout: as given; blocks are added to the layout.
        constants: columns that are the same for all lanes, by the name of their block.
        differentiate: the program of values and derivatives.
        factors: the symbolic analysis.
        entry: which value of the factors an entry of the matrix's upper triangle is, by row and column.
        pattern: rows and columns of the entries of `H`, `J` and `A`.
        of_y, of_nu: where outputs and equality multipliers stand in a right-hand side.
    """

    def __init__(self, newton: Newton, layout: Layout) -> None:
        self.newton, self.layout, self._model = newton, layout, newton.model
        self._derivatives()
        self._analyse()

    def _derivatives(self) -> None:
        """Values and derivatives of the problem: the one program that CasADi writes."""
        model, newton = self._model, self.newton
        y, x = casadi.SX.sym("y", newton.n), casadi.SX.sym("x", len(model.nominal))
        nu, z = casadi.SX.sym("nu", model.n_equalities), casadi.SX.sym("z", newton.n_slacks)
        weight = casadi.SX.sym("weight")
        found = model.weighted_second_order(y, x, nu, z[: model.n_inequalities, 0], weight)
        names = "objective", "c", "h", "gradient", "J", "A", "H"
        self._sparsities = dict(zip(names[4:], (part.sparsity() for part in found[4:]), strict=True))
        outputs = {
            name: entries(casadi.densify(part)) for name, part in zip(names[1:4], found[1:4], strict=True)
        }
        outputs |= {name: entries(part) for name, part in zip(names[4:], found[4:], strict=True)}
        self.constants = {"first guess": model.start[model.free]}
        if model.bounds is None:
            self.constants |= {"low": model.lower[model.free], "high": model.upper[model.free]}
        else:
            ends = (bound[model.free.tolist(), 0] for bound in model.search_of(x))
            outputs |= dict(zip(("low", "high"), map(casadi.densify, ends), strict=True))
        inputs = {"y": y, "x": x, "nu": nu, "z": z, "weight": weight}
        self.differentiate = program(self.layout, inputs, outputs)
        for name, column in self.constants.items():
            self.layout.add(name, len(column))

    def _analyse(self) -> None:
        """The pattern of the matrix, its symbolic analysis, and where each part of it goes."""
        newton, model = self.newton, self._model
        n, ne = newton.n, model.n_equalities
        hessian, equality, inequality = (self._sparsities[name] for name in ("H", "J", "A"))
        block = hessian + casadi.mtimes(inequality.T, inequality) + casadi.Sparsity.diag(n)
        pattern = casadi.blockcat(
            [
                [casadi.DM(block, 1.0), casadi.DM(equality.T, 1.0)],
                [casadi.DM(equality, 1.0), casadi.DM.eye(ne)],
            ]
        ).sparsity()
        self.factors = factors = analyse(pattern)
        row, column = np.array(pattern.row())[factors.upper], np.array(pattern.get_col())[factors.upper]
        self.entry = dict(
            zip(zip(row.tolist(), column.tolist(), strict=True), factors.entries.tolist(), strict=True)
        )
        self.layout.add("values", factors.values)
        self.layout.add("inverses", factors.size + 1)
        for k in (1, 2, 3):
            self.layout.add(f"right {k}", factors.size)
        position = np.empty(factors.size, dtype=np.int64)
        position[factors.order] = np.arange(factors.size)
        self.of_y, self.of_nu = position[:n], position[n:]
        self.pattern = {
            name: (np.array(self._sparsities[name].row()), np.array(self._sparsities[name].get_col()))
            for name in ("H", "J", "A")
        }
