"""One iteration of the interior-point method (`_newton`) for all lanes: programs around one factorisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feasibly.solve._newton import Newton
from feasibly.solve.lanes.formulas import INFO, ITERATE, PARAMETERS, Formulas
from feasibly.solve.lanes.kernels import WIDTHS, workspace
from feasibly.solve.lanes.program import Layout
from feasibly.solve.lanes.shared import SharedPrograms
from feasibly.solve.model import NlpModel
from feasibly.solve.settings import SolverSettings

_CACHE = 1_500_000
"""Bytes of memory up to which more lanes pay: about what a core's own cache holds."""


class LaneIteration:
    """The programs of one model, and the workspace that they work on; one thread at a time.

    A lane is a column of every array. Calling it reads `iterate`, `x` and `parameters` and writes `following`, `info`
    and the inertia; it changes nothing else, so that a lane may be held back by copying `iterate` over `following`.

    Attributes:
        newton: the formulas' sizes.
        shared: derivatives, and the pattern of the matrix.
        width: how many lanes there are.
        iterate, following: `(entries, lanes)`: each lane's iterate (see `parts`), and the one that its step leads to.
        x, parameters: of each lane.
        info: `(len(INFO), lanes)`.
        negative: how many negative eigenvalues every lane's last matrix has: one per equality if its inertia is right.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model = model
        self.newton = newton = Newton(model, settings)
        ne, ni = model.n_equalities, model.n_inequalities
        sizes = dict(zip(ITERATE, (newton.n, ne, newton.n_slacks, newton.n_slacks, ne, ne, ni), strict=True))
        layout = Layout()
        for name, size in sizes.items():
            layout.add(name, size)
        self.parts = {name: layout.blocks[name] for name in ITERATE}
        here = slice(0, layout.size)
        for name, size in sizes.items():
            layout.add(f"new {name}", size)
        there = slice(here.stop, layout.size)
        for name in PARAMETERS:
            layout.add(name, 1)
        own = slice(there.stop, layout.size)
        for name in INFO:
            layout.add(name, 1)
        info = slice(own.stop, layout.size)
        self.shared = shared = SharedPrograms(newton, layout)
        plain, elastic = (Formulas(shared, elastic) for elastic in (False, True))
        self.width = next((w for w in WIDTHS[::-1] if layout.size * w * 8 <= _CACHE), WIDTHS[0])
        self.workspace = workspace(layout.size, self.width)
        for value, slot in layout.constants.items():
            self.workspace[slot] = value
        for name, column in shared.constants.items():
            self.workspace[layout.blocks[name]] = column[:, None]
        self.iterate, self.following = self.workspace[here], self.workspace[there]
        self.parameters, self.info = self.workspace[own], self.workspace[info]
        self.x = self.workspace[layout.blocks["x"]]
        values, inverses = (self.workspace[layout.blocks[name]] for name in ("values", "inverses"))
        self.negative = inverses[-1]
        right = [self.workspace[layout.blocks[f"right {k}"]] for k in (1, 2, 3)]
        self._factor = shared.factors.factor(values, inverses)
        self._substitute = [shared.factors.substitute(values, inverses, part) for part in right]
        self._differentiate = shared.differentiate.on(self.workspace)
        self._plain, self._elastic = (part.on(self.workspace) for part in (plain, elastic))
        self._kept = plain, elastic  # whose arrays the addresses are of
        self._mu, self._refine_below = (
            self.info[INFO.index("mu")],
            self.parameters[PARAMETERS.index("refine below")],
        )
        self._is_elastic = self.parameters[PARAMETERS.index("elastic")]

    def __call__(self) -> None:
        """Measure all lanes' iterates and find where their steps lead."""
        programs = self._elastic if self._is_elastic.any() else self._plain
        predictor, corrector, refinement = self._substitute
        self._differentiate()
        programs.assemble()
        self._factor()
        predictor()
        programs.predicted()
        corrector()
        programs.corrected()
        if (self._mu < self._refine_below).any():
            programs.residual()
            refinement()
            programs.refined()
        programs.step()

    def inertia_is_right(self) -> NDArray[np.bool_]:
        """Lanes whose last matrix, with its shift, has a Hessian that curves upwards on the constraints."""
        return np.asarray(self.negative == self.model.n_equalities)
