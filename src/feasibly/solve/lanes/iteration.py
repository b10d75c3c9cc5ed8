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


class LanePrograms:
    """What lanes of any width run for one model: the layout of their workspace, programs, and the analysed matrix.

    Attributes:
        newton: the formulas' sizes.
        shared: derivatives, and the pattern of the matrix.
        plain, elastic: the programs of an iteration, without and with elastic variables.
        parts: where an iterate's parts stand in it.
        here, there, parameters, info: where the iterate, the one that its step leads to, the parameters and what is
            measured stand in the workspace.

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
        self.here = slice(0, layout.size)
        for name, size in sizes.items():
            layout.add(f"new {name}", size)
        self.there = slice(self.here.stop, layout.size)
        for name in PARAMETERS:
            layout.add(name, 1)
        self.parameters = slice(self.there.stop, layout.size)
        for name in INFO:
            layout.add(name, 1)
        self.info = slice(self.parameters.stop, layout.size)
        self.shared = SharedPrograms(newton, layout)
        self.plain, self.elastic = (Formulas(self.shared, elastic) for elastic in (False, True))

    @property
    def usual_width(self) -> int:
        """As many lanes as pay."""
        return next((w for w in WIDTHS[::-1] if self.shared.layout.size * w * 8 <= _CACHE), WIDTHS[0])


class LaneIteration:
    """The programs of one model on a workspace of their own; one thread at a time.

    A lane is a column of every array. Calling it reads `iterate`, `x` and `parameters` and writes `following`, `info`
    and the inertia; it changes nothing else, so that a lane may be held back by copying `iterate` over `following`.

    Attributes:
        programs: which may have other workspaces, too.
        width: how many lanes there are; as many as pay, unless said.
        iterate, following: `(entries, lanes)`: each lane's iterate (see `parts`), and the one that its step leads to.
        x, parameters: of each lane.
        info: `(len(INFO), lanes)`.
        negative: how many negative eigenvalues every lane's last matrix has: one per equality if its inertia is right.
    """

    def __init__(self, programs: LanePrograms, width: int | None = None) -> None:
        self.programs, self.model, self.newton = programs, programs.model, programs.newton
        self.parts, self.shared = programs.parts, programs.shared
        shared, layout = programs.shared, programs.shared.layout
        self.width = programs.usual_width if width is None else width
        self.workspace = workspace(layout.size, self.width)
        for value, slot in layout.constants.items():
            self.workspace[slot] = value
        for name, column in shared.constants.items():
            self.workspace[layout.blocks[name]] = column[:, None]
        self.iterate, self.following = self.workspace[programs.here], self.workspace[programs.there]
        self.parameters, self.info = self.workspace[programs.parameters], self.workspace[programs.info]
        self.x = self.workspace[layout.blocks["x"]]
        values, inverses = (self.workspace[layout.blocks[name]] for name in ("values", "inverses"))
        self.negative = inverses[-1]
        right = [self.workspace[layout.blocks[f"right {k}"]] for k in (1, 2, 3)]
        self._factor = shared.factors.factor(values, inverses)
        self._substitute = [shared.factors.substitute(values, inverses, part) for part in right]
        self._differentiate = shared.differentiate.on(self.workspace)
        self._plain, self._elastic = (part.on(self.workspace) for part in (programs.plain, programs.elastic))
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
