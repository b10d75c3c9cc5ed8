"""How solutions move with the input, for many rows at once, a lane each.

Of the optimality conditions

    H dy + J' dnu + A' dz = -gradient_x dx        J dy = -equality_x dx        A dy - (s / z) dz = -limits_x dx

the last are eliminated as in an iteration (`_newton`), with `z / s` no larger than `condensed_largest_ratio`; what that
leaves out, and what is added to the diagonal, comes back by refinement on the same matrix. In order
(`Tangents.solve`):

1. Newton's method on the active set takes points to the optima themselves (`_cross_over`): the same equations, with the
   residuals of the optimality conditions for what the input changes. There `s / z` is zero for what is active, and
   everything else is left out.
2. Where no active set shows itself to be that of an optimum, a point is taken as it is, and `z / s` as it has it.
3. A direction takes a right-hand side of its own, and substitutions until further ones would change nothing
   (`_follow`).
"""

from __future__ import annotations

from collections.abc import Callable

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
from feasibly.solve.sensitivity import changes_ahead, no_further

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Tangents:
    """For one model; one thread at a time.

    Args:
        iteration: whose derivatives and factors are taken.
        kept: which inequalities of the whole problem its model has.
        bounds: of all outputs, for inputs a row each.
    """

    def __init__(
        self, iteration: LaneIteration, kept: Ints, bounds: Callable[[Array], tuple[Array, Array]]
    ) -> None:
        shared = iteration.shared
        self._newton, self._model, self._settings = shared.newton, shared.newton.model, shared.newton.settings
        self._kept, self._bounds = kept, bounds
        layout = shared.layout.copy()
        self._linear = linear = CondensedColumns(shared, layout)
        n, ne, rows = self._newton.n, self._model.n_equalities, self._newton.n_slacks
        for name, size in (("y", n), ("nu", ne), ("z", rows)):
            layout.add(f"moved {name}", size)
        for name, size in (("gradient", n), ("equality", ne), ("slack", rows)):
            layout.add(f"residual of {name}", size)
        for name in ("ratio", "slack over z"):
            layout.add(name, rows)
        layout.add("input bounds", rows - self._model.n_inequalities)
        layout.add("relative residual", 1)
        build = ProgramBuilder(layout)
        linear.matrix(build, build.constant(self._settings.condensed_regularisation))
        matrix, moves = build.program(), self._input()
        programs = matrix, moves, self._begin(), self._correct(), self._measure()
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
        names, moves = ["input gradient", "input equality", "input slack"], list(moves)
        if model.bounds is not None:
            low, high = (casadi.jacobian(bound, x) for bound in model.bounds(x))
            below, above = model.free[newton.below].tolist(), model.free[newton.above].tolist()
            names += ["input bounds", "input low"]
            moves += [casadi.vertcat(low[below, :], -high[above, :]), low]
        columns = (entries(casadi.densify(casadi.mtimes(part, along))) for part in moves)
        outputs = dict(zip(names, columns, strict=True))
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
        build.copy(build.block("input bounds"), slack[ni:])

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

    def solve(self, x: Array, point: Point, along: Array) -> tuple[Array, Mask, dict[int, Point]]:
        """How outputs move along the columns of `along`, `(rows, n_outputs, k)`, and for which rows that is sound.

        Of other rows, where an active set was that of an optimum, that optimum.
        """
        crossed: dict[int, Point] = {}
        moved = np.zeros((len(x), len(self._model.lower), along.shape[1]))
        others = np.delete(point.duals.inequality, self._kept, axis=1)
        sound: Mask = np.all(others <= 0.0, axis=1)
        lower, upper = self._bounds(x)
        pinned = np.asarray(lower >= upper)
        columns = self._columns(x, point, pinned)
        width, uncertain = self._workspace.shape[1], [np.zeros(0, dtype=np.int64)]
        for first in range(0, len(x), width):
            rows = np.arange(first, min(first + width, len(x)))
            self._load(columns, rows)
            sure = self._cross_over(len(rows))
            uncertain.append(rows[~sure])
            self._follow(rows, pinned, along, moved, sound)
            crossed |= {
                int(rows[k]): self._at(k, point.take(rows[k]))
                for k in np.flatnonzero(sure & ~sound[rows]).tolist()
            }
        left = np.concatenate(uncertain)
        for first in range(0, len(left), width):
            rows = left[first : first + width]
            self._load(columns, rows)
            self._differentiate()
            self._count_by_slack()
            sound[rows] = np.all(others[rows] <= 0.0, axis=1)
            self._follow(rows, pinned, along, moved, sound)
        return moved, sound, crossed

    def _at(self, lane: int, given: Point) -> Point:
        """Where a lane stands, in the problem's own units."""
        model, newton, blocks = self._model, self._newton, self._blocks
        free, unit, ni, nl = model.free, model.objective_scale, model.n_inequalities, len(newton.below)
        y, nu, z = (blocks[name][:, lane] for name in ("y", "nu", "z"))
        inequality, lower, upper = np.zeros_like(given.duals.inequality), *np.zeros((2, len(model.lower)))
        inequality[self._kept] = z[:ni] * model.inequality_scale / unit
        lower[free[newton.below]] = z[ni : ni + nl] / unit
        upper[free[newton.above]] = z[ni + nl : ni + nl + len(newton.above)] / unit
        whole = given.y.copy()
        whole[free] = y
        return Point.of(whole, nu * model.equality_scale / unit, inequality, lower, upper)

    def _load(self, columns: dict[str, Array], rows: Ints) -> None:
        """Give lanes their rows; one that has none gets the last."""
        lanes = np.minimum(np.arange(self._workspace.shape[1]), len(rows) - 1)
        for name, values in columns.items():
            self._blocks[name][:] = values[rows[lanes]].T

    def _follow(self, rows: Ints, pinned: Mask, along: Array, moved: Array, sound: Mask) -> None:
        """Move the rows in the lanes along every direction, on derivatives and ratios that are there."""
        self._assemble()
        self._factor()
        self._blocks["input bounds"][:] = 0.0
        for k, direction in enumerate(along.T):
            self._blocks["along"][:] = direction[:, None]
            self._move()
            ahead = self._solve_for_input(len(rows))
            self._look()
            moved[rows[:, None], self._model.free, k] = self._blocks["moved y"][:, : len(rows)].T
            if self._model.bounds is not None:
                low = self._blocks["input low"][:, : len(rows)].T
                moved[rows, :, k] = np.where(pinned[rows], low, moved[rows, :, k])
            left = self._blocks["relative residual"][0, : len(rows)]
            s = self._settings
            sound[rows] &= (left <= s.condensed_residual) & (ahead <= s.refinement_correction)  # NaN is not

    def _solve_for_input(self, count: int) -> Array:
        """`moved` for what stands in the blocks of the input; by which share of it further solves would change it in
        the first lanes.

        Residuals say nothing about directions in which there is hardly any curvature; what solves change does.
        """
        blocks, s = self._blocks, self._settings
        self._start()
        ahead = change = np.full(count, np.inf)
        for _ in range(s.refinement_solves):
            self._substitute()
            before = change
            change = np.abs(blocks["right 1"][self._linear.of_y, :count]).max(axis=0, initial=0.0)
            self._add()
            largest = np.abs(blocks["moved y"][:, :count]).max(axis=0, initial=0.0)
            ahead = changes_ahead(change, before, s.slowest_refinement) / (largest + 1e-300)
            if np.all(ahead <= s.refinement_enough):
                break
        return np.asarray(ahead)

    # ---- active sets -----------------------------------------------------------------------------------

    def _cross_over(self, count: int) -> Mask:
        """Take the points in the first lanes to the optima of their active sets; for which that is what was found.

        What is active has a multiplier larger than its slack; where signs come out wrong that is changed. An interior
        point is a barrier away from its optimum, and what hardly presses moves with the barrier.
        """
        blocks, s = self._blocks, self._settings
        self._differentiate()
        active = blocks["z"] > self._slacks()
        sure = np.zeros(active.shape[1], dtype=bool)
        last, settled = np.full(active.shape[1], np.inf), sure
        for left in reversed(range(s.crossover_rounds)):
            blocks["z"][~active] = 0.0
            self._differentiate()
            slack = self._slacks()
            wrong = np.where(active, blocks["z"] < -s.crossover_sign, slack < -s.crossover_sign)
            largest = np.maximum(*(np.abs(blocks[name]).max(axis=0, initial=0.0) for name in ("nu", "z")))
            residual = self._set_residuals(np.where(active, -slack, 0.0))
            optimal = ~wrong.any(axis=0) & (residual <= s.crossover_residual * (1.0 + largest))
            sure = optimal & settled if left else optimal
            if sure[:count].all():
                break
            # Lanes that are sure stay where they are, to the last digit: their neighbours do not change them.
            active ^= wrong
            blocks["z"][~active] = 0.0
            self._count_active(active)
            self._set_residuals(np.where(active, -slack, 0.0))
            self._assemble()
            self._factor()
            # One solve: what it leaves, the next round finds. Where an output hardly matters refinement goes on and on.
            self._start()
            self._substitute()
            self._add()
            moves = ~sure & np.isfinite(blocks["moved y"]).all(axis=0)
            for name in ("y", "nu", "z"):
                blocks[name][:, moves] += blocks[f"moved {name}"][:, moves]
            step = np.abs(blocks["moved y"]).max(axis=0, initial=0.0)
            last, settled = step, settled | no_further(step, last, s)
        self._count_active(active)
        return sure[:count]

    def _slacks(self) -> Array:
        """What all constraints have left at the lanes' points."""
        blocks, newton = self._blocks, self._newton
        y, below, above = blocks["y"], newton.below, newton.above
        parts = y[below] - blocks["low"][below], blocks["high"][above] - y[above]
        return np.concatenate([-blocks["h"], *parts, np.ones((newton.padding, y.shape[1]))])

    def _set_residuals(self, off: Array) -> Array:
        """Put what is left of the optimality conditions where the input's changes stand; the largest of each lane.

        `off` is by how much active constraints are off; the others do not count.
        """
        blocks, newton, ni = self._blocks, self._newton, self._model.n_inequalities
        middle = ni + len(newton.below)
        gradient = blocks["input gradient"]
        gradient[:] = blocks["gradient"]
        gradient[newton.below] -= blocks["z"][ni:middle]
        gradient[newton.above] += blocks["z"][middle : middle + len(newton.above)]
        blocks["input equality"][:] = blocks["c"]
        blocks["input slack"][:], blocks["input bounds"][:] = off[:ni], off[ni:]
        parts = gradient, blocks["c"], off
        return np.asarray(np.max([np.abs(part).max(axis=0, initial=0.0) for part in parts], axis=0))

    def _count_active(self, active: Mask) -> None:
        """What is active holds with equality, and nothing else counts."""
        self._blocks["ratio"][:] = np.where(active, self._settings.condensed_largest_ratio, 0.0)
        self._blocks["slack over z"][:] = 0.0

    def _count_by_slack(self) -> None:
        """Constraints count with their multiplier over the slack that they have at the lanes' points."""
        s, z = self._settings, self._blocks["z"]
        slack = np.maximum(self._slacks(), s.slack_floor)
        self._blocks["ratio"][:] = np.minimum(z / slack, s.condensed_largest_ratio)
        self._blocks["slack over z"][:] = np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0)

    def _columns(self, x: Array, point: Point, pinned: Mask) -> dict[str, Array]:
        """What lanes are given of each row, in scaled units.

        Nothing depends on outputs that an input pins: they are inside of their usual bounds, without multipliers.
        """
        model, newton, duals = self._model, self._newton, point.duals
        free, unit = model.free, model.objective_scale
        below, above = free[newton.below], free[newton.above]
        inequality = duals.inequality[:, self._kept] * (unit / model.inequality_scale)
        low, high = (np.where(pinned, 0.0, part) * unit for part in (duals.lower, duals.upper))
        padding = np.zeros((len(x), newton.padding))
        y = np.where(pinned, np.clip(point.y, model.lower, model.upper), point.y)[:, free]
        return {
            "y": y, "x": x, "nu": duals.equality * (unit / model.equality_scale),
            "z": np.concatenate([inequality, low[:, below], high[:, above], padding], axis=1),
        }  # fmt: skip
