"""One iteration of the interior-point method (`_newton`) for all lanes: programs around one factorisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi
import numpy as np
from numpy.typing import NDArray

from feasibly.solve._newton import DUAL_REGULARISATION, Newton
from feasibly.solve.lanes.factors import analyse
from feasibly.solve.lanes.machine import memory
from feasibly.solve.lanes.program import Layout, Program, entries, program
from feasibly.solve.model import Model

STATE = ("y", "nu", "s", "z")
INFO = 6
"""Errors of stationarity, feasibility and complementarity; complementarity; the steps of outputs and multipliers."""
SETTINGS = 6


class Iteration:
    """The programs of one model, and the memory that they work on; one thread at a time.

    Attributes:
        newton: the formulas' sizes.
        state, moved: `(entries, lanes)`: where each lane stands (see `parts`), and where it would go.
        x, settings: of each lane.
        info: `(INFO, lanes)`: errors where it stands, and the steps it would take.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, model: Model) -> None:
        self.newton = Newton(model, _largest, _total)
        self.model = model
        sizes = dict(zip(STATE, self.newton.sizes(), strict=True))
        layout = Layout()
        first = layout.size
        for name, size in sizes.items():
            layout.add(name, size)
        self.parts = {
            name: slice(block.start - first, block.stop - first) for name, block in layout.blocks.items()
        }
        where = slice(first, layout.size)
        first = layout.size
        for name, size in sizes.items():
            layout.add(f"new {name}", size)
        there = slice(first, layout.size)
        self._programs = _Written(self.newton, layout)
        self.memory = memory(layout.size)
        for value, place in layout.constants.items():
            self.memory[place] = value
        blocks = {name: self.memory[block] for name, block in layout.blocks.items()}
        self.state, self.moved = self.memory[where], self.memory[there]
        self.x, self.settings, self.info = blocks["x"], blocks["settings"], blocks["info"]
        self._values, self._inverses = blocks["values"], blocks["inverses"]
        self._mu = blocks["mu"][0]
        self._right = [blocks[f"right {k}"] for k in (1, 2, 3)]

    def __call__(self) -> None:
        """Look at where all lanes stand and find where they would go."""
        written, factors = self._programs, self._programs.factors
        predictor, corrector, refinement = self._right
        written.assemble(self.memory)
        factors.factor(self._values, self._inverses)
        factors.substitute(self._values, self._inverses, predictor)
        written.correct(self.memory)
        factors.substitute(self._values, self._inverses, corrector)
        written.direct(self.memory)
        if (self._mu < self.settings[5]).any():
            written.leave(self.memory)
            factors.substitute(self._values, self._inverses, refinement)
            written.refine(self.memory)
            written.move_refined(self.memory)
        else:
            written.move(self.memory)

    def inertia(self) -> NDArray[np.int64]:
        """Negative eigenvalues of every lane's last matrix: one for each equality if it curves upwards."""
        return np.asarray((self._inverses < 0.0).sum(axis=0))

    def curves_up(self, lane: int) -> bool:
        """Whether a lane's last matrix does, without the shift that it may have been given."""
        return not self.settings[1, lane] and bool(
            (self._inverses[:, lane] < 0.0).sum() == self.model.n_equalities
        )


class _Written:
    """The formulas of `Newton.step`, cut where a linear system is solved."""

    def __init__(self, newton: Newton, layout: Layout) -> None:
        self._newton, self._layout = newton, layout
        n, ne, rows = newton.n, newton.model.n_equalities, newton.rows
        symbols = newton.symbols(casadi.SX)
        y, nu, s, z, x = symbols
        state = dict(zip((*STATE, "x"), symbols, strict=True))
        settings = casadi.SX.sym("settings", SETTINGS)
        barrier, shift, bold, regularisation, stiffest, refined_below = casadi.vertsplit(settings)
        parts = newton.model.full(y, x, nu, z[: newton.model.n_inequalities, 0])
        residuals = slope, equality, off = newton.residuals(symbols, parts)
        equality_jacobian, inequality_jacobian, hessian = parts[4:]
        limits = newton.limits(inequality_jacobian)
        slack = casadi.fmax(s, z / stiffest)
        ratio = z / slack
        matrix = newton.matrix(hessian, equality_jacobian, limits, ratio, regularisation + shift)
        self.factors = analyse(matrix.sparsity())
        order = self.factors.order.tolist()
        mu = _total(s * z) / rows
        pull = ratio * off - s * z / slack
        right = casadi.vertcat(slope + casadi.mtimes(limits.T, pull), equality)
        # What later programs read again: matrices by their entries.
        kept = {
            "slope": slope, "equality": equality, "off": off, "ratio": ratio, "slack": slack, "mu": mu,
            "pull": pull, "errors": newton.measure(symbols, residuals), "H": hessian, "J": equality_jacobian,
            "A": inequality_jacobian,
        }  # fmt: skip
        values = layout.add("values", self.factors.values)
        layout.add("inverses", self.factors.size)
        fill = np.setdiff1d(np.arange(self.factors.values), self.factors.entries)
        zeros = casadi.SX(casadi.DM.zeros(len(fill)))
        self.assemble = self._program(
            state | {"settings": settings},
            {
                "right 1": -right[order, 0],
                "matrix": entries(matrix)[self.factors.upper.tolist(), 0],
                "fill": zeros,
            }
            | {name: entries(value) for name, value in kept.items()},
            {"matrix": values.start + self.factors.entries, "fill": (values.start + fill).astype(np.int32)},
        )
        known = {name: casadi.SX.sym(name, value.sparsity()) for name, value in kept.items()}
        read = {name: entries(value) for name, value in known.items()}
        solution = casadi.SX.sym("solution", n + ne)
        change = casadi.SX(n + ne, 1)
        change[order, 0] = solution
        limits = newton.limits(known["A"])
        ratio, slack, off, mu = (known[name] for name in ("ratio", "slack", "off", "mu"))

        def along(change: Any, pull: Any) -> tuple[Any, Any]:
            moved = casadi.mtimes(limits, change)
            return -off - moved, pull + ratio * moved

        # The predictor: how far it reaches decides what the corrector aims at.
        ds, dz = along(change[:n, 0], known["pull"])
        reach = newton.longest(s, ds, 1.0), newton.longest(z, dz, 1.0)
        ahead = _total((s + reach[0] * ds) * (z + reach[1] * dz)) / rows
        part = casadi.fmin(*reach)
        centring = casadi.fmax(0.3 * (1.0 - bold) * (1.0 - part), casadi.fmin(1.0, (ahead / mu) ** 3))
        target = casadi.fmax(centring * mu, barrier) - casadi.fmax(part**2, bold) * ds * dz
        pull = known["pull"] + target / slack
        right = casadi.vertcat(known["slope"] + casadi.mtimes(limits.T, pull), known["equality"])
        later = {"s": s, "z": z, "settings": settings}
        self.correct = self._program(
            later
            | {"right 1": solution}
            | self._read(read, "A", "ratio", "slack", "off", "mu", "pull", "slope", "equality"),
            {"target": target, "right 2": -right[order, 0], "pull 2": pull},
        )
        aim, pull = casadi.SX.sym("target", rows), casadi.SX.sym("pull", rows)
        ds, dz = along(change[:n, 0], pull)
        direction = {"dy": change[:n, 0], "dnu": change[n:, 0], "ds": ds, "dz": dz}
        self.direct = self._program(
            {"right 2": solution, "pull 2": pull} | self._read(read, "A", "ratio", "off"), direction
        )
        going = {name: casadi.SX.sym(name, value.shape[0]) for name, value in direction.items()}
        dy, dnu, ds, dz = going.values()
        slope = known["slope"] + casadi.mtimes(known["H"], dy) + shift * dy + casadi.mtimes(known["J"].T, dnu)
        slope = slope + casadi.mtimes(limits.T, dz)
        equality = known["equality"] + casadi.mtimes(known["J"], dy) - DUAL_REGULARISATION * dnu
        left = off + casadi.mtimes(limits, dy) + ds
        pull = ratio * left - (s * z + z * ds + s * dz - aim) / slack
        right = casadi.vertcat(slope + casadi.mtimes(limits.T, pull), equality)
        self.leave = self._program(
            later
            | going
            | {"target": aim}
            | self._read(read, "A", "H", "J", "ratio", "slack", "off", "slope", "equality"),
            {"right 3": -right[order, 0], "pull 3": pull, "left": left},
        )
        pull, left = casadi.SX.sym("pull", rows), casadi.SX.sym("left", rows)
        moved = casadi.mtimes(limits, change[:n, 0])
        wanted = mu < refined_below
        more = {"dy": change[:n, 0], "dnu": change[n:, 0], "ds": -left - moved, "dz": pull + ratio * moved}
        self.refine = self._program(
            {"right 3": solution, "settings": settings, "pull 3": pull, "left": left}
            | going
            | self._read(read, "A", "ratio", "mu"),
            {
                f"better {name}": value + casadi.if_else(wanted, more[name], 0.0)
                for name, value in going.items()
            },
        )
        keep = casadi.fmax(0.995, 1.0 - mu)
        steps = newton.longest(s, ds, keep), newton.longest(z, dz, keep)
        self.move, self.move_refined = (
            self._program(
                {"y": y, "nu": nu, "s": s, "z": z}
                | {f"{which}{name}": symbol for name, symbol in going.items()}
                | self._read(read, "mu", "errors"),
                {
                    "new y": y + steps[0] * dy, "new nu": nu + steps[1] * dnu, "new s": s + steps[0] * ds,
                    "new z": z + steps[1] * dz, "info": casadi.vertcat(known["errors"], mu, *steps),
                },
            )
            for which in ("", "better ")
        )  # fmt: skip

    def _program(self, inputs: dict[str, Any], outputs: dict[str, Any], places: Any = None) -> Program:
        dense = {name: casadi.densify(value) for name, value in outputs.items()}
        return program(
            self._layout, {name: entries(symbol) for name, symbol in inputs.items()}, dense, places
        )

    def _read(self, read: dict[str, Any], *names: str) -> dict[str, Any]:
        return {name: read[name] for name in names if read[name].nnz()}


def _pairwise(combine: Callable[[Any, Any], Any], column: Any) -> Any:
    """The entries of a column come down to one in pairs, so that no operation waits for a long chain of others."""
    while (count := column.shape[0]) > 1:
        half = count // 2
        paired = combine(column[:half, 0], column[half : 2 * half, 0])
        column = casadi.vertcat(paired, column[2 * half :, 0])
    return column


def _largest(column: Any) -> Any:
    return _pairwise(casadi.fmax, column)


def _total(column: Any) -> Any:
    return _pairwise(lambda first, second: first + second, column)
