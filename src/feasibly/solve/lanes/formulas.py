"""The formulas of one iteration of the interior-point method (`_newton`), written as programs for lanes.

A lane may be *elastic*: equalities and inequalities may then be broken at a price of one, `c = a - b` and `h + s = t`
with `a, b, s, t >= 0`, against an objective that counts `weight`. Such a problem always has an interior, so that the
iteration gets stuck nowhere: it ends at the optimum if the price is high enough, else at a least infeasible point. By
its own optimality conditions the multipliers of `a`, `b` and `t` are `1 - nu`, `1 + nu` and `1 - z`; eliminated, they
change two diagonals of the matrix and nothing of its pattern:

    [w H + A' (1 / R) A, J'; J, -E]        R = s / z + t / (1 - z)        E = a / (1 - nu) + b / (1 + nu)

For a lane that is not, `a`, `b` and `t` are zero and what is written for elastic ones is multiplied by zero; while no
lane is elastic, that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from feasibly.solve.lanes.linear import Linear
from feasibly.solve.lanes.machine import Memory
from feasibly.solve.lanes.pen import Column, Pen
from feasibly.solve.lanes.shared import Shared

STATE = ("y", "nu", "s", "z", "a", "b", "t")
SETTINGS = (
    "barrier", "shift", "bold", "regularisation", "stiffest", "refined below", "elastic", "weight", "pull"
)  # fmt: skip
"""Of each lane: those of `Manner.settings`; whether it is elastic, what the objective counts, and the weight of staying
near the first guess."""
INFO = (
    "stationarity",
    "feasibility",
    "complementarity",
    "mu",
    "primal step",
    "dual step",
    "broken",
    "off by",
)
"""Errors where a lane stands, the average complementarity, the steps it would take, the sum of `a`, `b` and `t`, and
the sum of what equalities and rows are off by, of which feasibility is the largest."""


class Steps(NamedTuple):
    """The programs between differentiating and solving."""

    assemble: Callable[[], None]
    correct: Callable[[], None]
    direct: Callable[[], None]
    leave: Callable[[], None]
    refine: Callable[[], None]
    move: Callable[[], None]


class Formulas:
    """The formulas of `Newton.step`, cut where a linear system is solved."""

    def __init__(self, shared: Shared, elastic: bool) -> None:
        self._newton, self._model, self._layout = shared.newton, shared.newton.model, shared.layout
        self._numbers = shared.newton.settings
        self._linear = Linear(shared, shared.layout)
        self._elastic = elastic
        self.assemble = self._assemble()
        self.correct = self._correct()
        self.direct = self._direct()
        self.leave, self.refine = self._leave(), self._refine()
        self.move = self._move()

    def on(self, vectors: Memory) -> Steps:
        """The programs, ready to run there."""
        return Steps(*(getattr(self, name).on(vectors) for name in Steps._fields))

    # ---- columns that several programs read ------------------------------------------------------------

    def _state(self, pen: Pen) -> list[Column]:
        return [pen.block(name) for name in STATE]

    def _settings(self, pen: Pen, *names: str) -> list[Column]:
        return [pen.block(name) for name in names]

    def _sum(self, pen: Pen, products: Column, others: Column) -> Column:
        """Of all products; those of elastic lanes apart, so that a row's digits do not depend on who is beside it."""
        total = pen.total(products)
        return pen.add(total, pen.total(others)) if self._elastic else total

    # ---- programs --------------------------------------------------------------------------------------

    def _assemble(self) -> Any:
        """Residuals, errors, the matrix, and the predictor's right-hand side."""
        pen, newton, model = Pen(self._layout), self._newton, self._model
        n, ne, ni, rows, nl = (
            newton.n,
            model.n_equalities,
            model.n_inequalities,
            newton.rows,
            len(newton.below),
        )
        y, nu, s, z, a, b, t = self._state(pen)
        elastic, stiffest, shift, regularisation, near = self._settings(
            pen, "elastic", "stiffest", "shift", "regularisation", "pull"
        )
        c, h, low, high = (pen.block(name) for name in ("c", "h", "low", "high"))
        # The constraints themselves, then what is left of them with their slacks.
        base = pen.block("base", rows)
        pen.copy(h, base[:ni])
        pen.sub(low[newton.below], y[newton.below], base[ni : ni + nl])
        pen.sub(y[newton.above], high[newton.above], base[ni + nl : ni + nl + len(newton.above)])
        pen.copy(np.broadcast_to(pen.constant(-1.0), newton.padding), base[rows - newton.padding :])
        off = pen.add(base, s, pen.block("off", rows))
        balance = pen.copy(c, pen.block("balance", ne))
        if self._elastic:
            pen.sub(off[:ni], t, off[:ni])
            pen.add(pen.sub(c, a), b, balance)
        slope = pen.copy(pen.block("slope"), pen.block("whole slope", n))
        away = pen.sub(y, pen.block("first guess"))
        pen.accumulate(slope, near, away)
        held = z[ni : ni + nl], z[ni + nl : ni + nl + len(newton.above)]
        pen.sub(slope[newton.below], held[0], slope[newton.below])
        pen.add(slope[newton.above], held[1], slope[newton.above])
        give = pen.do("FMAX", s, pen.div(z, stiffest), pen.block("give", rows))
        pairs = pen.copy(pen.constant(float(rows)), pen.block("pairs", 1))
        products, others = pen.mul(s, z), pen.new(0)
        if self._elastic:
            # What is left between the multipliers of a broken constraint and their price; one for who breaks none.
            beyond = pen.sub(1.0, pen.mul(elastic, z[:ni]), pen.block("1 - z", ni))
            above = pen.sub(1.0, pen.mul(elastic, nu), pen.block("1 - nu", ne))
            below = pen.add(1.0, pen.mul(elastic, nu), pen.block("1 + nu", ne))
            pen.accumulate(give[:ni], z[:ni], pen.div(t, beyond))
            pen.accumulate(pairs, elastic, float(ni + 2 * ne))
            others = np.concatenate([pen.mul(t, beyond), pen.mul(a, above), pen.mul(b, below)])
        ratio = pen.div(z, give, pen.block("ratio", rows))
        pen.div(self._sum(pen, products, others), pairs, pen.block("mu"))
        multipliers = pen.do("FABS", np.concatenate([nu, z]))
        average = pen.div(pen.total(multipliers), float(ne + rows))
        usual = self._numbers.usual_multiplier
        weight = pen.mul(pen.do("FMAX", average, usual), 1.0 / usual)
        pen.div(pen.largest(pen.do("FABS", slope)), weight, pen.block("stationarity"))
        missing = pen.do("FABS", np.concatenate([balance, off]))
        pen.copy(pen.largest(missing), pen.block("feasibility"))
        pen.copy(pen.total(missing), pen.block("off by"))
        pen.div(pen.largest(np.concatenate([products, others])), weight, pen.block("complementarity"))
        pen.copy(
            pen.total(np.concatenate([a, b, t])) if self._elastic else pen.constant(0.0), pen.block("broken")
        )
        corner = self._linear.matrix(pen, pen.add(regularisation, pen.add(shift, near)))
        if self._elastic:
            give = pen.add(pen.div(a, pen.block("1 - nu")), pen.div(b, pen.block("1 + nu")))
            pen.sub(corner, give, corner)
        right = self._linear.right_hand(pen, slope, pen.mul(ratio, base, pen.block("pull 1", rows)), 1)
        pen.do("NEG", c, None, right[self._linear.of_nu])
        return pen.program()

    def _change(self, pen: Pen, number: int, aims: list[Column] | None) -> dict[str, Column]:
        """The direction that belongs to a solution; `aims` are what `s z`, `t (1 - z)`, `a (1 - nu)`, `b (1 + nu)` are
        to become, nothing for the predictor."""
        ni, rows = self._model.n_inequalities, self._newton.rows
        _, _, _, _, a, b, t = self._state(pen)
        dy, dnu = self._linear.solution(pen, number)
        along = self._linear.along(pen, dy)
        dz = pen.fma(pen.block("ratio"), along, pen.block(f"pull {number}"))
        ds = pen.do("NEG", pen.add(pen.block("off"), along))
        if not self._elastic:
            return {"y": dy, "nu": dnu, "s": ds, "z": dz}
        beyond, above, below = self._room(pen)
        moved_t, moved_a, moved_b = pen.mul(t, dz[:ni]), pen.mul(a, dnu), pen.mul(b, dnu)
        if aims is not None:
            moved_t, moved_a = pen.add(moved_t, aims[1]), pen.add(moved_a, aims[2])
            moved_b = pen.sub(moved_b, aims[3])
        dt = pen.sub(pen.div(moved_t, beyond), t)
        da = pen.sub(pen.div(moved_a, above), a)
        db = pen.sub(pen.do("NEG", pen.div(moved_b, below)), b)
        ds = np.concatenate([pen.add(ds[:ni], dt), ds[ni:rows]])
        return {"y": dy, "nu": dnu, "s": ds, "z": dz, "a": da, "b": db, "t": dt}

    def _reach(self, pen: Pen, d: dict[str, Column], keep: Any) -> tuple[Column, Column]:
        """The longest steps, at most one, of outputs and slacks and of multipliers, that leave each `1 - keep`."""
        ni = self._model.n_inequalities
        _, _, s, z, a, b, t = self._state(pen)
        primal, dual = [pen.div(d["s"], s)], [pen.div(d["z"], z)]
        if self._elastic:
            (elastic,) = self._settings(pen, "elastic")
            plain = pen.sub(1.0, elastic)
            for name, part in (("a", a), ("b", b), ("t", t)):
                primal.append(pen.div(d[name], pen.add(part, plain)))
            back = pen.do("NEG", elastic)
            for step, change, room in zip(
                (back, back, elastic), (d["z"][:ni], d["nu"], d["nu"]), self._room(pen), strict=True
            ):
                dual.append(pen.div(pen.mul(step, change), room))
        steps = []
        for shares in (primal, dual):
            most = pen.largest(pen.do("NEG", np.concatenate(shares)))
            steps.append(pen.do("FMIN", pen.div(keep, pen.do("FMAX", most, 1e-30)), 1.0))
        return steps[0], steps[1]

    def _room(self, pen: Pen) -> list[Column]:
        """What is left between multipliers and the price of breaking a constraint."""
        return [pen.block(name) for name in ("1 - z", "1 - nu", "1 + nu")]

    def _correct(self) -> Any:
        """How far the predictor reaches decides what the corrector aims at."""
        pen, ni, ne, rows = (
            Pen(self._layout), self._model.n_inequalities, self._model.n_equalities, self._newton.rows
        )  # fmt: skip
        _, _, s, z, a, b, t = self._state(pen)
        elastic, bold, barrier = self._settings(pen, "elastic", "bold", "barrier")
        d = self._change(pen, 1, None)
        primal, dual = self._reach(pen, d, 1.0)

        def there(column: Column, step: Column, change: Column) -> Column:
            return pen.fma(step, change, column)

        products, others = pen.mul(there(s, primal, d["s"]), there(z, dual, d["z"])), pen.new(0)
        if self._elastic:
            away = pen.mul(dual, elastic)
            back = pen.do("NEG", away)
            beyond, above, below = self._room(pen)
            others = np.concatenate([
                pen.mul(there(t, primal, d["t"]), there(beyond, back, d["z"][:ni])),
                pen.mul(there(a, primal, d["a"]), there(above, back, d["nu"])),
                pen.mul(there(b, primal, d["b"]), there(below, away, d["nu"])),
            ])  # fmt: skip
        ahead = pen.div(self._sum(pen, products, others), pen.block("pairs"))
        mu, part = pen.block("mu"), pen.do("FMIN", primal, dual)
        share = pen.div(ahead, mu)
        cube = pen.do("FMIN", pen.mul(pen.mul(share, share), share), 1.0)
        careful = pen.mul(pen.mul(pen.sub(1.0, bold), pen.sub(1.0, part)), self._numbers.centring)
        target = pen.do("FMAX", pen.mul(pen.do("FMAX", careful, cube), mu), barrier)
        second = pen.do("FMAX", pen.mul(part, part), bold)
        minus = pen.do("NEG", second)
        aim = pen.fma(minus, pen.mul(d["s"], d["z"]), target, pen.block("aim s", rows))
        base, c = pen.add(pen.block("base"), pen.div(aim, z)), pen.block("c")
        if self._elastic:
            price = pen.mul(elastic, target)
            aims = [
                pen.fma(second, pen.mul(d["t"], d["z"][:ni]), price, pen.block("aim t", ni)),
                pen.fma(second, pen.mul(d["a"], d["nu"]), price, pen.block("aim a", ne)),
                pen.fma(minus, pen.mul(d["b"], d["nu"]), price, pen.block("aim b", ne)),
            ]
            base = np.concatenate([pen.sub(base[:ni], pen.div(aims[0], beyond)), base[ni:]])
            c = pen.sub(c, pen.sub(pen.div(aims[1], above), pen.div(aims[2], below)))
        pull = pen.mul(pen.block("ratio"), base, pen.block("pull 2", rows))
        right = self._linear.right_hand(pen, pen.block("whole slope"), pull, 2)
        pen.do("NEG", c, None, right[self._linear.of_nu])
        return pen.program()

    def _aims(self, pen: Pen) -> list[Column]:
        return [pen.block(f"aim {name}") for name in (("s", "t", "a", "b") if self._elastic else "s")]

    def _direct(self) -> Any:
        """The corrector's direction."""
        pen = Pen(self._layout)
        for name, column in self._change(pen, 2, self._aims(pen)).items():
            pen.copy(column, pen.block(f"d{name}", len(column)))
        return pen.program()

    def _leave(self) -> Any:
        """What is left of Newton's equations after that direction, as another right-hand side."""
        pen, ni = Pen(self._layout), self._model.n_inequalities
        _, _, s, z, _, _, _ = self._state(pen)
        dy, dnu, ds, dz = (pen.block(f"d{name}") for name in ("y", "nu", "s", "z"))
        slope = pen.copy(pen.block("whole slope"))
        rows, columns = self._linear.places["H"]
        pen.multiply(rows, columns, pen.block("H"), dy, slope)
        pen.accumulate(slope, pen.add(pen.block("shift"), pen.block("pull")), dy)
        rows, columns = self._linear.places["J"]
        pen.multiply(columns, rows, pen.block("J"), dnu, slope)
        self._linear.add_pull(pen, dz, slope)
        balance = pen.copy(pen.block("balance"))
        pen.multiply(rows, columns, pen.block("J"), dy, balance)
        balance = pen.fma(-self._numbers.dual_regularisation, dnu, balance)
        left = pen.add(
            pen.add(pen.block("off"), ds), self._linear.along(pen, dy), pen.block("left", self._newton.rows)
        )
        if self._elastic:
            balance = pen.add(pen.sub(balance, pen.block("da")), pen.block("db"))
            pen.sub(left[:ni], pen.block("dt"), left[:ni])
        product = pen.fma(s, dz, pen.fma(z, ds, pen.mul(s, z)))
        gap = pen.div(pen.sub(product, pen.block("aim s")), pen.block("give"))
        pull = pen.sub(pen.mul(pen.block("ratio"), left), gap, pen.block("pull 3", self._newton.rows))
        right = self._linear.right_hand(pen, slope, pull, 3)
        pen.do("NEG", balance, None, right[self._linear.of_nu])
        return pen.program()

    def _refine(self) -> Any:
        """The direction with that taken care of, for lanes that ask for it."""
        pen, ni = Pen(self._layout), self._model.n_inequalities
        wanted = pen.do("LT", pen.block("mu"), pen.block("refined below"))
        dy, dnu = self._linear.solution(pen, 3)
        along = self._linear.along(pen, dy)
        dz = pen.fma(pen.block("ratio"), along, pen.block("pull 3"))
        ds = pen.do("NEG", pen.add(pen.block("left"), along))
        more = {"y": dy, "nu": dnu, "s": ds, "z": dz}
        if self._elastic:
            _, _, _, _, a, b, t = self._state(pen)
            beyond, above, below = self._room(pen)
            more |= {
                "a": pen.div(pen.mul(a, dnu), above),
                "b": pen.do("NEG", pen.div(pen.mul(b, dnu), below)),
            }
            more["t"] = pen.div(pen.mul(t, dz[:ni]), beyond)
            more["s"] = np.concatenate([pen.add(ds[:ni], more["t"]), ds[ni:]])
        for name, change in more.items():
            if len(change):
                direction = pen.block(f"d{name}")
                pen.add(
                    direction, pen.do("IF_ELSE_ZERO", np.broadcast_to(wanted, len(change)), change), direction
                )
        return pen.program()

    def _move(self) -> Any:
        """The steps, and where they lead."""
        pen = Pen(self._layout)
        names = STATE if self._elastic else STATE[:4]
        d = {name: pen.block(f"d{name}") for name in names}
        keep = pen.do("FMAX", pen.sub(1.0, pen.block("mu")), self._numbers.furthest)
        primal, dual = self._reach(pen, d, keep)
        pen.copy(primal, pen.block("primal step"))
        pen.copy(dual, pen.block("dual step"))
        for name in names:
            step = dual if name in ("nu", "z") else primal
            pen.fma(step, d[name], pen.block(name), pen.block(f"new {name}"))
        return pen.program()
