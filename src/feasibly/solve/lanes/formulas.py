"""The formulas of one iteration of the interior-point method (`_newton`), as programs for lanes.

A lane may be *elastic*, (7) of docs/method.md: equalities and inequalities may then be violated at an l1 penalty of
one, `g = p - q` and `h + s = t` with `p, q, s, t >= 0`, against an objective with the weight `w`. Such a problem always
has an interior, so that the iteration stalls nowhere: it ends at the optimum if the penalty is high enough, else at an
infeasible stationary point. By its own optimality conditions the multipliers of `p`, `q` and `t` are `1 - nu`, `1 + nu`
and `1 - z`; eliminated, they change two diagonals of the matrix and nothing of its pattern, (8):

    [H + A' (1 / B) A, J'; J, -F]        B = s / z + t / (1 - z)        F = p / (1 - nu) + q / (1 + nu)

with `H` the Hessian of `w f + nu' g + z' h`.

In the code, where single letters are taken:

    there       here
    g           `c`, the values of the equalities
    p, q        `a`, `b` (`t` is `t`): parts of `ITERATE`
    1 - nu      `left_a`, what is left between a multiplier and the penalty; `left_b` is 1 + nu, `left_t` 1 - z
    B           "effective slack" over z; "ratio" is 1 / B
    F           taken off the lower corner of the matrix (`_assemble`)

For a lane that is not, `a`, `b` and `t` are zero and what is built for elastic ones is multiplied by zero; while no
lane is elastic, that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from feasibly.solve._newton import ROW_INFO
from feasibly.solve.lanes.builder import Column, ProgramBuilder
from feasibly.solve.lanes.kernels import Workspace
from feasibly.solve.lanes.linear import CondensedColumns
from feasibly.solve.lanes.shared import SharedPrograms

ITERATE = ("y", "nu", "s", "z", "a", "b", "t")
"""An iterate of a lane, in scaled units: `InteriorIterate`, then the elastic variables (zero for a lane that is not
elastic)."""
PARAMETERS = (
    "barrier", "shift", "full corrector", "regularisation", "largest ratio", "refine below", "elastic", "weight",
    "proximal weight",
)  # fmt: skip
"""Of each lane: those of `StepSettings.parameters`; whether it is elastic, the objective's weight, and that of the
proximal term towards the first guess."""
INFO = (*ROW_INFO, "elastic sum", "residual sum")
"""Of each lane: that of one row; the sum of `a`, `b` and `t`; the sum of what equalities and slack residuals are off
by, of which feasibility is the largest."""


class IterationPrograms(NamedTuple):
    """What runs between solving linear systems, in this order."""

    assemble: Callable[[], None]
    """Residuals, errors, the matrix, the predictor's right-hand side."""
    predicted: Callable[[], None]
    """What the corrector aims at, and its right-hand side."""
    corrected: Callable[[], None]
    """The corrector's direction."""
    residual: Callable[[], None]
    """What that leaves of Newton's equations, as another right-hand side."""
    refined: Callable[[], None]
    """The direction with that taken care of."""
    step: Callable[[], None]
    """The lengths of the steps, and the next iterate."""


class Formulas:
    """The formulas of `Newton.step`, cut where a linear system is solved."""

    def __init__(self, shared: SharedPrograms, elastic: bool) -> None:
        self._newton, self._model, self._layout = shared.newton, shared.newton.model, shared.layout
        self._settings = shared.newton.settings
        self._linear = CondensedColumns(shared, shared.layout)
        self._elastic = elastic
        self.assemble = self._assemble()
        self.predicted, self.corrected = self._predicted(), self._corrected()
        self.residual, self.refined = self._residual(), self._refined()
        self.step = self._step()

    def on(self, vectors: Workspace) -> IterationPrograms:
        """The programs, ready to run there."""
        return IterationPrograms(*(getattr(self, name).on(vectors) for name in IterationPrograms._fields))

    # ---- columns that several programs read ------------------------------------------------------------

    def _iterate(self, build: ProgramBuilder) -> list[Column]:
        return [build.block(name) for name in ITERATE]

    def _parameters(self, build: ProgramBuilder, *names: str) -> list[Column]:
        return [build.block(name) for name in names]

    def _sum(self, build: ProgramBuilder, products: Column, others: Column) -> Column:
        """Of all products; those of elastic lanes apart, so that a row's digits do not depend on who is beside it."""
        total = build.total(products)
        return build.add(total, build.total(others)) if self._elastic else total

    # ---- programs --------------------------------------------------------------------------------------

    def _assemble(self) -> Any:
        """Residuals, errors, the matrix, and the predictor's right-hand side."""
        build = ProgramBuilder(self._layout)
        limits = self._residuals(build)
        self._errors(build, *self._complementarity(build))
        ratio = build.block("ratio")
        proximal, regularisation, shift = self._parameters(
            build, "proximal weight", "regularisation", "shift"
        )
        corner = self._linear.matrix(build, build.add(regularisation, build.add(shift, proximal)))
        if self._elastic:
            _, _, _, _, a, b, _ = self._iterate(build)
            elastic_corner = build.add(
                build.div(a, build.block("1 - nu")), build.div(b, build.block("1 + nu"))
            )
            build.sub(corner, elastic_corner, corner)
        offset = build.mul(ratio, limits, build.block("dz offset 1", self._newton.n_slacks))
        right = self._linear.right_hand(build, build.block("full gradient"), offset, 1)
        build.apply("NEG", build.block("c"), None, right[self._linear.of_nu])
        return build.program()

    def _residuals(self, build: ProgramBuilder) -> Column:
        """The limits `c(y)`, which are returned, and the residuals of slacks, equalities and gradient."""
        newton, ne, ni = self._newton, self._model.n_equalities, self._model.n_inequalities
        slacks, n_lower, n_upper = newton.n_slacks, len(newton.below), len(newton.above)
        y, _, s, z, a, b, t = self._iterate(build)
        (proximal,) = self._parameters(build, "proximal weight")
        c, h, low, high = (build.block(name) for name in ("c", "h", "low", "high"))
        limits = build.block("limits", slacks)
        build.copy(h, limits[:ni])
        build.sub(low[newton.below], y[newton.below], limits[ni : ni + n_lower])
        build.sub(y[newton.above], high[newton.above], limits[ni + n_lower : ni + n_lower + n_upper])
        build.copy(np.broadcast_to(build.constant(-1.0), newton.padding), limits[slacks - newton.padding :])
        slack_residual = build.add(limits, s, build.block("slack residual", slacks))
        equality_residual = build.copy(c, build.block("equality residual", ne))
        if self._elastic:
            build.sub(slack_residual[:ni], t, slack_residual[:ni])
            build.add(build.sub(c, a), b, equality_residual)
        gradient = build.copy(build.block("gradient"), build.block("full gradient", newton.n))
        away = build.sub(y, build.block("first guess"))
        build.accumulate(gradient, proximal, away)
        build.sub(gradient[newton.below], z[ni : ni + n_lower], gradient[newton.below])
        build.add(gradient[newton.above], z[ni + n_lower : ni + n_lower + n_upper], gradient[newton.above])
        return limits

    def _complementarity(self, build: ProgramBuilder) -> tuple[Column, Column]:
        """`mu` and the ratio; the products `s z` and those of elastic variables are returned."""
        ne, ni, slacks = self._model.n_equalities, self._model.n_inequalities, self._newton.n_slacks
        _, nu, s, z, a, b, t = self._iterate(build)
        elastic, largest_ratio = self._parameters(build, "elastic", "largest ratio")
        effective = build.apply(
            "FMAX", s, build.div(z, largest_ratio), build.block("effective slack", slacks)
        )
        pairs = build.copy(build.constant(float(slacks)), build.block("pairs", 1))
        products, others = build.mul(s, z), build.temporary(0)
        if self._elastic:
            # What is left between multipliers and their penalty; one for lanes that are not elastic.
            left_t = build.sub(1.0, build.mul(elastic, z[:ni]), build.block("1 - z", ni))
            left_a = build.sub(1.0, build.mul(elastic, nu), build.block("1 - nu", ne))
            left_b = build.add(1.0, build.mul(elastic, nu), build.block("1 + nu", ne))
            build.accumulate(effective[:ni], z[:ni], build.div(t, left_t))
            build.accumulate(pairs, elastic, float(ni + 2 * ne))
            others = np.concatenate([build.mul(t, left_t), build.mul(a, left_a), build.mul(b, left_b)])
        build.div(z, effective, build.block("ratio", slacks))
        build.div(self._sum(build, products, others), pairs, build.block("mu"))
        return products, others

    def _errors(self, build: ProgramBuilder, products: Column, others: Column) -> None:
        """As `Newton.scaled_errors` and `Newton.cost_of_residuals`, and the two sums of `INFO`."""
        _, nu, _, z, a, b, t = self._iterate(build)
        residuals = build.block("equality residual"), build.block("slack residual")
        multipliers = build.apply("FABS", np.concatenate([nu, z]))
        average = build.div(build.total(multipliers), float(len(nu) + len(z)))
        usual = self._settings.usual_multiplier
        weight = build.mul(build.apply("FMAX", average, usual), 1.0 / usual)
        gradient = build.apply("FABS", build.block("full gradient"))
        build.div(build.largest(gradient), weight, build.block("stationarity"))
        off = build.apply("FABS", np.concatenate(residuals))
        build.copy(build.largest(off), build.block("feasibility"))
        build.copy(build.total(off), build.block("residual sum"))
        costs = build.total(build.mul(np.concatenate([nu, z]), np.concatenate(residuals)))
        build.apply("FABS", costs, None, build.block("cost of residuals"))
        build.div(build.largest(np.concatenate([products, others])), weight, build.block("complementarity"))
        violations = build.total(np.concatenate([a, b, t])) if self._elastic else build.constant(0.0)
        build.copy(violations, build.block("elastic sum"))

    def _direction(
        self, build: ProgramBuilder, number: int, targets: list[Column] | None
    ) -> dict[str, Column]:
        """The direction that belongs to a solution; `targets` are what `s z`, `t (1 - z)`, `a (1 - nu)`, `b (1 + nu)`
        are to become, nothing for the predictor."""
        ni, rows = self._model.n_inequalities, self._newton.n_slacks
        _, _, _, _, a, b, t = self._iterate(build)
        dy, dnu = self._linear.solution(build, number)
        along = self._linear.along(build, dy)
        dz = build.fma(build.block("ratio"), along, build.block(f"dz offset {number}"))
        ds = build.apply("NEG", build.add(build.block("slack residual"), along))
        if not self._elastic:
            return {"y": dy, "nu": dnu, "s": ds, "z": dz}
        left_t, left_a, left_b = self._left_to_penalty(build)
        moved_t, moved_a, moved_b = build.mul(t, dz[:ni]), build.mul(a, dnu), build.mul(b, dnu)
        if targets is not None:
            moved_t, moved_a = build.add(moved_t, targets[1]), build.add(moved_a, targets[2])
            moved_b = build.sub(moved_b, targets[3])
        dt = build.sub(build.div(moved_t, left_t), t)
        da = build.sub(build.div(moved_a, left_a), a)
        db = build.sub(build.apply("NEG", build.div(moved_b, left_b)), b)
        ds = np.concatenate([build.add(ds[:ni], dt), ds[ni:rows]])
        return {"y": dy, "nu": dnu, "s": ds, "z": dz, "a": da, "b": db, "t": dt}

    def _steps(self, build: ProgramBuilder, d: dict[str, Column], fraction: Any) -> tuple[Column, Column]:
        """The longest steps, at most one, of outputs and slacks and of multipliers, that leave each `1 - fraction`."""
        ni = self._model.n_inequalities
        _, _, s, z, a, b, t = self._iterate(build)
        primal, dual = [build.div(d["s"], s)], [build.div(d["z"], z)]
        if self._elastic:
            (elastic,) = self._parameters(build, "elastic")
            plain = build.sub(1.0, elastic)
            for name, part in (("a", a), ("b", b), ("t", t)):
                primal.append(build.div(d[name], build.add(part, plain)))
            back = build.apply("NEG", elastic)
            for step, change, left in zip(
                (back, back, elastic),
                (d["z"][:ni], d["nu"], d["nu"]),
                self._left_to_penalty(build),
                strict=True,
            ):
                dual.append(build.div(build.mul(step, change), left))
        steps = []
        for shares in (primal, dual):
            most = build.largest(build.apply("NEG", np.concatenate(shares)))
            steps.append(build.apply("FMIN", build.div(fraction, build.apply("FMAX", most, 1e-30)), 1.0))
        return steps[0], steps[1]

    def _left_to_penalty(self, build: ProgramBuilder) -> list[Column]:
        """What is left between multipliers and the penalty of violating a constraint."""
        return [build.block(name) for name in ("1 - z", "1 - nu", "1 + nu")]

    def _predicted(self) -> Any:
        """How far the predictor reaches decides what the corrector aims at."""
        build, rows = ProgramBuilder(self._layout), self._newton.n_slacks
        ni, ne = self._model.n_inequalities, self._model.n_equalities
        _, _, s, z, a, b, t = self._iterate(build)
        elastic, full, barrier = self._parameters(build, "elastic", "full corrector", "barrier")
        d = self._direction(build, 1, None)
        primal, dual = self._steps(build, d, 1.0)

        def there(column: Column, step: Column, change: Column) -> Column:
            return build.fma(step, change, column)

        products, others = build.mul(there(s, primal, d["s"]), there(z, dual, d["z"])), build.temporary(0)
        if self._elastic:
            away = build.mul(dual, elastic)
            back = build.apply("NEG", away)
            left_t, left_a, left_b = self._left_to_penalty(build)
            others = np.concatenate([
                build.mul(there(t, primal, d["t"]), there(left_t, back, d["z"][:ni])),
                build.mul(there(a, primal, d["a"]), there(left_a, back, d["nu"])),
                build.mul(there(b, primal, d["b"]), there(left_b, away, d["nu"])),
            ])  # fmt: skip
        affine_mu = build.div(self._sum(build, products, others), build.block("pairs"))
        mu, affine_step = build.block("mu"), build.apply("FMIN", primal, dual)
        share = build.div(affine_mu, mu)
        cube = build.apply("FMIN", build.mul(build.mul(share, share), share), 1.0)
        short = build.mul(build.sub(1.0, full), build.sub(1.0, affine_step))
        safeguarded = build.mul(short, self._settings.least_centring)
        target = build.apply("FMAX", build.mul(build.apply("FMAX", safeguarded, cube), mu), barrier)
        second = build.apply("FMAX", build.mul(affine_step, affine_step), full)
        minus = build.apply("NEG", second)
        target_s = build.fma(minus, build.mul(d["s"], d["z"]), target, build.block("target s", rows))
        limits, c = build.add(build.block("limits"), build.div(target_s, z)), build.block("c")
        if self._elastic:
            elastic_target = build.mul(elastic, target)
            targets = [
                build.fma(
                    second, build.mul(d["t"], d["z"][:ni]), elastic_target, build.block("target t", ni)
                ),
                build.fma(second, build.mul(d["a"], d["nu"]), elastic_target, build.block("target a", ne)),
                build.fma(minus, build.mul(d["b"], d["nu"]), elastic_target, build.block("target b", ne)),
            ]
            limits = np.concatenate([build.sub(limits[:ni], build.div(targets[0], left_t)), limits[ni:]])
            c = build.sub(c, build.sub(build.div(targets[1], left_a), build.div(targets[2], left_b)))
        offset = build.mul(build.block("ratio"), limits, build.block("dz offset 2", rows))
        right = self._linear.right_hand(build, build.block("full gradient"), offset, 2)
        build.apply("NEG", c, None, right[self._linear.of_nu])
        return build.program()

    def _targets(self, build: ProgramBuilder) -> list[Column]:
        return [build.block(f"target {name}") for name in (("s", "t", "a", "b") if self._elastic else "s")]

    def _corrected(self) -> Any:
        """The corrector's direction."""
        build = ProgramBuilder(self._layout)
        for name, column in self._direction(build, 2, self._targets(build)).items():
            build.copy(column, build.block(f"d{name}", len(column)))
        return build.program()

    def _residual(self) -> Any:
        """What is left of Newton's equations after that direction, as another right-hand side."""
        build, ni = ProgramBuilder(self._layout), self._model.n_inequalities
        _, _, s, z, _, _, _ = self._iterate(build)
        dy, dnu, ds, dz = (build.block(f"d{name}") for name in ("y", "nu", "s", "z"))
        gradient = build.copy(build.block("full gradient"))
        rows, columns = self._linear.pattern["H"]
        build.add_product(rows, columns, build.block("H"), dy, gradient)
        build.accumulate(gradient, build.add(build.block("shift"), build.block("proximal weight")), dy)
        rows, columns = self._linear.pattern["J"]
        build.add_product(columns, rows, build.block("J"), dnu, gradient)
        self._linear.add_transposed_times(build, dz, gradient)
        equality_residual = build.copy(build.block("equality residual"))
        build.add_product(rows, columns, build.block("J"), dy, equality_residual)
        equality_residual = build.fma(-self._settings.dual_regularisation, dnu, equality_residual)
        slacks = self._newton.n_slacks
        moved = build.add(build.block("slack residual"), ds)
        left = build.block("refined slack residual", slacks)
        slack_residual = build.add(moved, self._linear.along(build, dy), left)
        if self._elastic:
            equality_residual = build.add(build.sub(equality_residual, build.block("da")), build.block("db"))
            build.sub(slack_residual[:ni], build.block("dt"), slack_residual[:ni])
        product = build.fma(s, dz, build.fma(z, ds, build.mul(s, z)))
        gap = build.div(build.sub(product, build.block("target s")), build.block("effective slack"))
        offset = build.block("dz offset 3", slacks)
        build.sub(build.mul(build.block("ratio"), slack_residual), gap, offset)
        right = self._linear.right_hand(build, gradient, offset, 3)
        build.apply("NEG", equality_residual, None, right[self._linear.of_nu])
        return build.program()

    def _refined(self) -> Any:
        """The direction with that taken care of, for lanes that ask for it."""
        build, ni = ProgramBuilder(self._layout), self._model.n_inequalities
        wanted = build.apply("LT", build.block("mu"), build.block("refine below"))
        dy, dnu = self._linear.solution(build, 3)
        along = self._linear.along(build, dy)
        dz = build.fma(build.block("ratio"), along, build.block("dz offset 3"))
        ds = build.apply("NEG", build.add(build.block("refined slack residual"), along))
        more = {"y": dy, "nu": dnu, "s": ds, "z": dz}
        if self._elastic:
            _, _, _, _, a, b, t = self._iterate(build)
            left_t, left_a, left_b = self._left_to_penalty(build)
            more |= {
                "a": build.div(build.mul(a, dnu), left_a),
                "b": build.apply("NEG", build.div(build.mul(b, dnu), left_b)),
            }
            more["t"] = build.div(build.mul(t, dz[:ni]), left_t)
            more["s"] = np.concatenate([build.add(ds[:ni], more["t"]), ds[ni:]])
        for name, change in more.items():
            if len(change):
                direction = build.block(f"d{name}")
                taken = build.apply("IF_ELSE_ZERO", np.broadcast_to(wanted, len(change)), change)
                build.add(direction, taken, direction)
        return build.program()

    def _step(self) -> Any:
        """The steps, and where they lead."""
        build = ProgramBuilder(self._layout)
        names = ITERATE if self._elastic else ITERATE[:4]
        d = {name: build.block(f"d{name}") for name in names}
        fraction = build.apply("FMAX", build.sub(1.0, build.block("mu")), self._settings.boundary_fraction)
        primal, dual = self._steps(build, d, fraction)
        build.copy(primal, build.block("primal step"))
        build.copy(dual, build.block("dual step"))
        for name in names:
            step = dual if name in ("nu", "z") else primal
            build.fma(step, d[name], build.block(name), build.block(f"new {name}"))
        return build.program()
