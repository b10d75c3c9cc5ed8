"""How solutions move with the input, for many rows at once: the equations of `solve.condensed`, a lane each.

The matrix is that of an iteration and so are its derivatives and its factors; a direction takes a right-hand side of
its own, two substitutions and a look at what they leave.
"""

from __future__ import annotations

import casadi
import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve.lanes.iteration import Iteration
from feasibly.solve.lanes.linear import Linear
from feasibly.solve.lanes.machine import memory
from feasibly.solve.lanes.pen import Column, Pen
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

    def __init__(self, iteration: Iteration, kept: Ints) -> None:
        shared = iteration.shared
        self._newton, self._model, self._settings = shared.newton, shared.newton.model, shared.newton.settings
        self._kept = kept
        layout = shared.layout.copy()
        self._linear = linear = Linear(shared, layout)
        n, ne, rows = self._newton.n, self._model.n_equalities, self._newton.rows
        for name, size in (("y", n), ("nu", ne), ("z", rows)):
            layout.add(f"moved {name}", size)
        for name, size in (("slope", n), ("balance", ne), ("room", rows)):
            layout.add(f"left in {name}", size)
        for name in ("ratio", "softness"):
            layout.add(name, rows)
        layout.add("left over", 1)
        pen = Pen(layout)
        linear.matrix(pen, pen.constant(self._settings.condensed_regularisation))
        programs = pen.program(), self._input(), self._begin(), self._go_on(), self._measure()
        self._memory = memory(layout.size, iteration.width)
        for value, place in layout.constants.items():
            self._memory[place] = value
        for name, column in shared.fixed.items():
            self._memory[layout.blocks[name]] = column[:, None]
        self._blocks = {name: self._memory[place] for name, place in layout.blocks.items()}
        self._blocks["weight"][:] = 1.0
        self._differentiate = shared.differentiate.on(self._memory)
        self._assemble, self._move, self._start, self._add, self._look = (
            part.on(self._memory) for part in programs
        )
        values, inverses, right = (self._blocks[name] for name in ("values", "inverses", "right 1"))
        self._factor = shared.factors.factor(values, inverses)
        self._substitute = shared.factors.substitute(values, inverses, right)
        self._alive = shared, programs  # whose arrays the addresses are of

    # ---- programs --------------------------------------------------------------------------------------

    def _input(self) -> Program:
        """How the gradient, equalities and inequalities move along the direction at hand."""
        model, newton = self._model, self._newton
        sizes = {"y": newton.n, "x": len(model.nominal), "nu": model.n_equalities, "z": newton.rows}
        symbols = {name: casadi.SX.sym(name, size) for name, size in sizes.items()}
        along = casadi.SX.sym("along", len(model.nominal))
        y, x, nu, z = symbols.values()
        moves = model.moves(y, x, nu, z[: model.n_inequalities, 0])
        columns = (entries(casadi.densify(casadi.mtimes(part, along))) for part in moves)
        outputs = dict(zip(("moves slope", "moves balance", "moves room"), columns, strict=True))
        return program(self._linear.layout, symbols | {"along": along}, outputs)

    def _moved(self, pen: Pen) -> list[Column]:
        return [pen.block(f"moved {name}") for name in ("y", "nu", "z")]

    def _left(self, pen: Pen) -> list[Column]:
        return [pen.block(f"left in {name}") for name in ("slope", "balance", "room")]

    def _given(self, pen: Pen) -> None:
        """What is left where nothing has moved yet."""
        ni = self._model.n_inequalities
        slope, balance, room = self._left(pen)
        pen.copy(pen.block("moves slope"), slope)
        pen.copy(pen.block("moves balance"), balance)
        pen.copy(pen.block("moves room"), room[:ni])
        pen.copy(np.broadcast_to(pen.constant(0.0), len(room) - ni), room[ni:])

    def _aim(self, pen: Pen) -> None:
        """A right-hand side of what is left."""
        slope, balance, room = self._left(pen)
        right = self._linear.right_hand(pen, slope, pen.mul(pen.block("ratio"), room), 1)
        pen.do("NEG", balance, None, right[self._linear.of_nu])

    def _begin(self) -> Program:
        pen = Pen(self._linear.layout)
        for column in self._moved(pen):
            pen.copy(np.broadcast_to(pen.constant(0.0), len(column)), column)
        self._given(pen)
        self._aim(pen)
        return pen.program()

    def _go_on(self) -> Program:
        """Add what was solved for, and see what that leaves."""
        pen, linear = Pen(self._linear.layout), self._linear
        dy, dnu = linear.solution(pen, 1)
        slope, balance, room = self._left(pen)
        dz = pen.mul(pen.block("ratio"), pen.add(linear.along(pen, dy), room))
        y, nu, z = self._moved(pen)
        for column, change in ((y, dy), (nu, dnu), (z, dz)):
            pen.add(column, change, column)
        self._given(pen)
        rows, columns = linear.places["H"]
        pen.multiply(rows, columns, pen.block("H"), y, slope)
        rows, columns = linear.places["J"]
        pen.multiply(columns, rows, pen.block("J"), nu, slope)
        linear.add_pull(pen, z, slope)
        pen.multiply(rows, columns, pen.block("J"), y, balance)
        linear.add_limits(pen, y, room)
        pen.sub(room, pen.mul(pen.block("softness"), z), room)
        self._aim(pen)
        return pen.program()

    def _measure(self) -> Program:
        """The largest of what is left, as a share of what it is left of."""
        pen, linear = Pen(self._linear.layout), self._linear
        slope, balance, room = self._left(pen)
        y, nu, _ = self._moved(pen)

        def largest(column: Column) -> Column:
            return pen.largest(pen.do("FABS", column))

        rows, columns = linear.places["J"]
        priced = pen.copy(np.broadcast_to(pen.constant(0.0), len(y)))
        pen.multiply(columns, rows, pen.block("J"), nu, priced)
        reach = pen.add(largest(y), 1e-300)
        against = pen.add(pen.fma(largest(pen.block("H")), reach, largest(priced)), 1e-300)
        off = pen.div(largest(slope), against)
        bounds = float(self._newton.rows - self._newton.padding > self._model.n_inequalities)
        steepest = pen.do("FMAX", largest(pen.block("A")), bounds)
        counts = pen.do("LT", np.broadcast_to(pen.constant(0.0), len(room)), pen.block("ratio"))
        missing = pen.do("FMAX", largest(balance), largest(pen.do("IF_ELSE_ZERO", counts, room)))
        pen.do("FMAX", off, pen.div(missing, pen.mul(steepest, reach)), pen.block("left over"))
        return pen.program()

    # ---- rows ------------------------------------------------------------------------------------------

    def solve(self, x: Array, point: Point, along: Array, tight: bool = True) -> tuple[Array, Mask]:
        """How outputs move along the columns of `along`, `(rows, n_outputs, k)`, and for which rows that is sound.

        Every inequality with a multiplier holds with equality if they are `tight`. Otherwise, and at bounds anyway,
        a constraint pulls back with its multiplier over its slack, as where the interior-point method has ended.
        """
        model, count = self._model, len(x)
        moved = np.zeros((count, len(model.lower), along.shape[1]))
        others = np.delete(point.duals.inequality, self._kept, axis=1)
        sound: Mask = np.all(others <= 0.0, axis=1)
        columns = self._columns(x, point)
        width = self._memory.shape[1]
        for first in range(0, count, width):
            rows = np.arange(first, min(first + width, count))
            for name, values in columns.items():
                self._blocks[name][:, : len(rows)] = values[rows].T
            self._differentiate()
            if not tight:
                self._loosen()
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
                left = self._blocks["left over"][0, : len(rows)]
                sound[rows] &= left <= self._settings.condensed_sound  # NaN is not
        return moved, sound

    def _loosen(self) -> None:
        """Give inequalities the slack that they have where lanes stand."""
        ni, s = self._model.n_inequalities, self._settings
        z, slack = self._blocks["z"][:ni], np.maximum(-self._blocks["h"], s.slack_floor)
        self._blocks["ratio"][:ni] = np.minimum(z / slack, s.condensed_stiffest)
        self._blocks["softness"][:ni] = np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0)

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
        room = point.y[:, below] - model.lower[below], model.upper[above] - point.y[:, above]
        slack = np.concatenate([np.zeros_like(held), *room, nothing + 1.0], axis=1)
        slack = np.maximum(slack, s.slack_floor)
        return {
            "y": point.y[:, free], "x": x, "nu": duals.equality * (unit / model.equality_scale), "z": z,
            "ratio": np.minimum(z / slack, s.condensed_stiffest),
            "softness": np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0),
        }  # fmt: skip
