"""How solutions move with the input, for many rows at once: the equations of `solve.condensed`, a lane each.

The matrix is that of an iteration and so are its derivatives and its factors; a direction takes a right-hand side of
its own, two substitutions and a look at what they leave.
"""

from __future__ import annotations

import casadi
import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve.lanes.builder import Column, ProgramBuilder
from feasibly.solve.lanes.iteration import LaneIteration
from feasibly.solve.lanes.kernels import workspace
from feasibly.solve.lanes.linear import CondensedColumns
from feasibly.solve.lanes.program import Program, entries, program
from feasibly.solve.records import Array

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Tangents:
    """For one model whose bounds do not depend on the input; one thread at a time.

    Args:
        iteration: whose derivatives and factors are taken.
        kept: which inequalities of the whole problem its model has.
    """

    def __init__(self, iteration: LaneIteration, kept: Ints) -> None:
        shared = iteration.shared
        self._newton, self._model, self._settings = shared.newton, shared.newton.model, shared.newton.settings
        self._kept = kept
        layout = shared.layout.copy()
        self._linear = linear = CondensedColumns(shared, layout)
        n, ne, rows = self._newton.n, self._model.n_equalities, self._newton.n_slacks
        for name, size in (("y", n), ("nu", ne), ("z", rows)):
            layout.add(f"moved {name}", size)
        for name, size in (("gradient", n), ("equality", ne), ("slack", rows)):
            layout.add(f"residual of {name}", size)
        for name in ("ratio", "slack over z"):
            layout.add(name, rows)
        layout.add("relative residual", 1)
        build = ProgramBuilder(layout)
        linear.matrix(build, build.constant(self._settings.condensed_regularisation))
        programs = build.program(), self._input(), self._begin(), self._correct(), self._measure()
        self._workspace = workspace(layout.size, iteration.width)
        for value, slot in layout.constants.items():
            self._workspace[slot] = value
        for name, column in shared.constants.items():
            self._workspace[layout.blocks[name]] = column[:, None]
        self._blocks = {name: self._workspace[slots] for name, slots in layout.blocks.items()}
        self._blocks["weight"][:] = 1.0
        self._differentiate = shared.differentiate.on(self._workspace)
        self._assemble, self._move, self._start, self._add, self._look = (
            part.on(self._workspace) for part in programs
        )
        values, inverses, right = (self._blocks[name] for name in ("values", "inverses", "right 1"))
        self._factor = shared.factors.factor(values, inverses)
        self._substitute = shared.factors.substitute(values, inverses, right)
        self._alive = shared, programs  # whose arrays the addresses are of

    # ---- programs --------------------------------------------------------------------------------------

    def _input(self) -> Program:
        """How the gradient, equalities and inequalities move along the direction at hand."""
        model, newton = self._model, self._newton
        sizes = {"y": newton.n, "x": len(model.nominal), "nu": model.n_equalities, "z": newton.n_slacks}
        symbols = {name: casadi.SX.sym(name, size) for name, size in sizes.items()}
        along = casadi.SX.sym("along", len(model.nominal))
        y, x, nu, z = symbols.values()
        moves = model.input_jacobians(y, x, nu, z[: model.n_inequalities, 0])
        columns = (entries(casadi.densify(casadi.mtimes(part, along))) for part in moves)
        outputs = dict(zip(("input gradient", "input equality", "input slack"), columns, strict=True))
        return program(self._linear.layout, symbols | {"along": along}, outputs)

    def _moved(self, build: ProgramBuilder) -> list[Column]:
        return [build.block(f"moved {name}") for name in ("y", "nu", "z")]

    def _residuals(self, build: ProgramBuilder) -> list[Column]:
        return [build.block(f"residual of {name}") for name in ("gradient", "equality", "slack")]

    def _begin_residuals(self, build: ProgramBuilder) -> None:
        """What is left where nothing has moved yet."""
        ni = self._model.n_inequalities
        gradient, equality, slack = self._residuals(build)
        build.copy(build.block("input gradient"), gradient)
        build.copy(build.block("input equality"), equality)
        build.copy(build.block("input slack"), slack[:ni])
        build.copy(np.broadcast_to(build.constant(0.0), len(slack) - ni), slack[ni:])

    def _right_hand(self, build: ProgramBuilder) -> None:
        """A right-hand side of what is left."""
        gradient, equality, slack = self._residuals(build)
        right = self._linear.right_hand(build, gradient, build.mul(build.block("ratio"), slack), 1)
        build.apply("NEG", equality, None, right[self._linear.of_nu])

    def _begin(self) -> Program:
        build = ProgramBuilder(self._linear.layout)
        for column in self._moved(build):
            build.copy(np.broadcast_to(build.constant(0.0), len(column)), column)
        self._begin_residuals(build)
        self._right_hand(build)
        return build.program()

    def _correct(self) -> Program:
        """Add what was solved for, and see what that leaves."""
        build, linear = ProgramBuilder(self._linear.layout), self._linear
        dy, dnu = linear.solution(build, 1)
        gradient, equality, slack = self._residuals(build)
        dz = build.mul(build.block("ratio"), build.add(linear.along(build, dy), slack))
        y, nu, z = self._moved(build)
        for column, change in ((y, dy), (nu, dnu), (z, dz)):
            build.add(column, change, column)
        self._begin_residuals(build)
        rows, columns = linear.pattern["H"]
        build.add_product(rows, columns, build.block("H"), y, gradient)
        rows, columns = linear.pattern["J"]
        build.add_product(columns, rows, build.block("J"), nu, gradient)
        linear.add_transposed_times(build, z, gradient)
        build.add_product(rows, columns, build.block("J"), y, equality)
        linear.add_jacobian_times(build, y, slack)
        build.sub(slack, build.mul(build.block("slack over z"), z), slack)
        self._right_hand(build)
        return build.program()

    def _measure(self) -> Program:
        """The largest of what is left, as a share of what it is left of."""
        build, linear = ProgramBuilder(self._linear.layout), self._linear
        gradient, equality, slack = self._residuals(build)
        y, nu, _ = self._moved(build)

        def largest(column: Column) -> Column:
            return build.largest(build.apply("FABS", column))

        rows, columns = linear.pattern["J"]
        equality_term = build.copy(np.broadcast_to(build.constant(0.0), len(y)))
        build.add_product(columns, rows, build.block("J"), nu, equality_term)
        reach = build.add(largest(y), 1e-300)
        against = build.add(build.fma(largest(build.block("H")), reach, largest(equality_term)), 1e-300)
        off = build.div(largest(gradient), against)
        bounds = float(self._newton.n_slacks - self._newton.padding > self._model.n_inequalities)
        steepest = build.apply("FMAX", largest(build.block("A")), bounds)
        counts = build.apply("LT", np.broadcast_to(build.constant(0.0), len(slack)), build.block("ratio"))
        missing = build.apply("FMAX", largest(equality), largest(build.apply("IF_ELSE_ZERO", counts, slack)))
        build.apply(
            "FMAX", off, build.div(missing, build.mul(steepest, reach)), build.block("relative residual")
        )
        return build.program()

    # ---- rows ------------------------------------------------------------------------------------------

    def solve(self, x: Array, point: Point, along: Array, tight: bool = True) -> tuple[Array, Mask]:
        """How outputs move along the columns of `along`, `(rows, n_outputs, k)`, and for which rows that is sound.

        Every inequality with a multiplier holds with equality if they are `tight`. Otherwise, and at bounds anyway,
        a constraint counts with its multiplier over its slack, as where the interior-point method has ended.
        """
        model, count = self._model, len(x)
        moved = np.zeros((count, len(model.lower), along.shape[1]))
        others = np.delete(point.duals.inequality, self._kept, axis=1)
        sound: Mask = np.all(others <= 0.0, axis=1)
        columns = self._columns(x, point)
        width = self._workspace.shape[1]
        for first in range(0, count, width):
            rows = np.arange(first, min(first + width, count))
            for name, values in columns.items():
                self._blocks[name][:, : len(rows)] = values[rows].T
            self._differentiate()
            if not tight:
                self._use_slacks()
            self._assemble()
            self._factor()
            for k, direction in enumerate(along.T):
                self._blocks["along"][:] = direction[:, None]
                self._move()
                self._start()
                for _ in range(self._settings.condensed_solves):
                    self._substitute()
                    self._add()
                self._look()
                moved[rows[:, None], model.free, k] = self._blocks["moved y"][:, : len(rows)].T
                left = self._blocks["relative residual"][0, : len(rows)]
                sound[rows] &= left <= self._settings.condensed_residual  # NaN is not
        return moved, sound

    def _use_slacks(self) -> None:
        """Give inequalities the slack that they have at the lanes' points."""
        ni, s = self._model.n_inequalities, self._settings
        z, slack = self._blocks["z"][:ni], np.maximum(-self._blocks["h"], s.slack_floor)
        self._blocks["ratio"][:ni] = np.minimum(z / slack, s.condensed_largest_ratio)
        self._blocks["slack over z"][:ni] = np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0)

    def _columns(self, x: Array, point: Point) -> dict[str, Array]:
        """What lanes are given of each row, in scaled units."""
        model, newton, duals, s = self._model, self._newton, point.duals, self._settings
        free, unit = model.free, model.objective_scale
        below, above = free[newton.below], free[newton.above]
        held = duals.inequality[:, self._kept] * (unit / model.inequality_scale)
        nothing = np.zeros((len(x), newton.padding))
        z = np.concatenate(
            [held, duals.lower[:, below] * unit, duals.upper[:, above] * unit, nothing], axis=1
        )
        bounds = point.y[:, below] - model.lower[below], model.upper[above] - point.y[:, above]
        slack = np.concatenate([np.zeros_like(held), *bounds, nothing + 1.0], axis=1)
        slack = np.maximum(slack, s.slack_floor)
        return {
            "y": point.y[:, free], "x": x, "nu": duals.equality * (unit / model.equality_scale), "z": z,
            "ratio": np.minimum(z / slack, s.condensed_largest_ratio),
            "slack over z": np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0),
        }  # fmt: skip
