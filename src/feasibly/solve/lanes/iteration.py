"""One iteration of the interior-point method for all lanes: the memory, and programs around one factorisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feasibly.solve._newton import Newton
from feasibly.solve.lanes.formulas import INFO, SETTINGS, STATE, Formulas
from feasibly.solve.lanes.machine import WIDTHS, memory
from feasibly.solve.lanes.program import Layout
from feasibly.solve.lanes.shared import Shared
from feasibly.solve.model import Model
from feasibly.solve.settings import SolverSettings

_CACHE = 1_500_000
"""Bytes of memory up to which more lanes pay: about what a core's own cache holds."""


class Iteration:
    """The programs of one model, and the memory that they work on; one thread at a time.

    Attributes:
        newton: the formulas' sizes.
        shared: derivatives, and the pattern of the matrix.
        width: how many lanes there are.
        state, moved: `(entries, lanes)`: where each lane stands (see `parts`), and where it would go.
        x, settings: of each lane.
        info: `(len(INFO), lanes)`.
        negative: eigenvalues of every lane's last matrix: one for each equality if it curves upwards.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, model: Model, settings: SolverSettings) -> None:
        self.model = model
        self.newton = newton = Newton(model, settings)
        ne, ni = model.n_equalities, model.n_inequalities
        sizes = dict(zip(STATE, (newton.n, ne, newton.rows, newton.rows, ne, ne, ni), strict=True))
        layout = Layout()
        for name, size in sizes.items():
            layout.add(name, size)
        self.parts = {name: layout.blocks[name] for name in STATE}
        where = slice(0, layout.size)
        for name, size in sizes.items():
            layout.add(f"new {name}", size)
        there = slice(where.stop, layout.size)
        for name in SETTINGS:
            layout.add(name, 1)
        own = slice(there.stop, layout.size)
        for name in INFO:
            layout.add(name, 1)
        info = slice(own.stop, layout.size)
        self.shared = shared = Shared(newton, layout)
        plain, elastic = (Formulas(shared, elastic) for elastic in (False, True))
        self.width = next((w for w in WIDTHS[::-1] if layout.size * w * 8 <= _CACHE), WIDTHS[0])
        self.memory = memory(layout.size, self.width)
        for value, place in layout.constants.items():
            self.memory[place] = value
        for name, column in shared.fixed.items():
            self.memory[layout.blocks[name]] = column[:, None]
        self.state, self.moved = self.memory[where], self.memory[there]
        self.settings, self.info = self.memory[own], self.memory[info]
        self.x = self.memory[layout.blocks["x"]]
        values, inverses = (self.memory[layout.blocks[name]] for name in ("values", "inverses"))
        self.negative = inverses[-1]
        right = [self.memory[layout.blocks[f"right {k}"]] for k in (1, 2, 3)]
        self._factor = shared.factors.factor(values, inverses)
        self._substitute = [shared.factors.substitute(values, inverses, part) for part in right]
        self._differentiate = shared.differentiate.on(self.memory)
        self._plain, self._elastic = (written.on(self.memory) for written in (plain, elastic))
        self._kept = plain, elastic  # whose arrays the addresses are of
        self._mu, self._refined = self.info[INFO.index("mu")], self.settings[SETTINGS.index("refined below")]
        self._bends = self.settings[SETTINGS.index("elastic")]

    def __call__(self) -> None:
        """Look at where all lanes stand and find where they would go."""
        written = self._elastic if self._bends.any() else self._plain
        predictor, corrector, refinement = self._substitute
        self._differentiate()
        written.assemble()
        self._factor()
        predictor()
        written.correct()
        corrector()
        written.direct()
        if (self._mu < self._refined).any():
            written.leave()
            refinement()
            written.refine()
        written.move()

    def curves_up(self) -> NDArray[np.bool_]:
        """Lanes whose last matrix does on the constraints, with what its Hessian was shifted by."""
        return np.asarray(self.negative == self.model.n_equalities)
