"""Inputs that are on or off: a branch or a generator that is out changes the optimality system in a few places only.

At the centre everything is on. With input `k` off the system becomes `K + U D U'`, where `U` picks the handful of
outputs and equalities that the element touches; its inverse is that of `K` and a correction of the same rank
(Sherman, Morrison and Woodbury), (3o) of docs/method.md:

    inv(K + U D U') = inv(K) - inv(K) U T U' inv(K)        T = inv(I + D U' inv(K) U) D

`inv(K) U` is a few columns of a matrix that is there anyway, so that all an element needs of its own is `D`, which is
saved, and `T`, matrices of eight by eight for a branch. The matrix of the complementarity problem changes in the same
way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.complementarity import Bordered, Pivoted, border

if TYPE_CHECKING:
    from feasibly.answer.calibration import Centre
    from feasibly.answer.candidates import Candidates
    from feasibly.answer.rowwise import RowSolver
    from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCKS = ("branch", "generator")


@record("switches", shapes={"inputs": "count", "index": "count places", "change": "count places places"})
@dataclass(frozen=True)
class Switches:
    """What each input does to the optimality system at the centre when it is off."""

    inputs: Ints
    """Their positions; all are one at the centre, and zero when off."""
    index: Ints
    """The places that change, among the outputs and, after those, the equalities; filled up with the first output."""
    change: Array
    """`D`, zero where the index is filled up."""


class Correction(NamedTuple):
    """The correction of an operator for every switch; the first entry, for rows with everything on, is none."""

    inputs: Any
    index: Any
    """As in `Switches`, among the free variables and the equalities."""
    middle: Any
    """`T`."""
    along: Any
    """`A inv(K) U`, in double precision like the matrix of the complementarity problem, with which it must agree."""
    bordered: tuple[Bordered, Bordered]
    """What it does to the complementarity problem, soft and hard."""

    def which(self, x: Any) -> Any:
        """Which correction each row takes, for inputs `(inputs, rows)`: the first unless one switch alone is off."""
        import jax.numpy as jnp

        off = x[self.inputs] == 0.0
        return jnp.where(jnp.sum(off, axis=0) == 1, jnp.argmax(off, axis=0) + 1, 0)

    def of(self, which: Any, blocks: Any) -> Corrected:
        """Each row's own; `blocks` is the operator's."""
        import jax

        index = self.index[which].T
        bordered = jax.tree.map(lambda part: part[which], self.bordered)
        return Corrected(index, blocks[:, index], self.middle[which], self.along[which], bordered)


class Corrected(NamedTuple):
    """The corrections of the rows of a batch."""

    index: Any
    columns: Any
    middle: Any
    along: Any
    bordered: tuple[Bordered, Bordered]

    def __call__(self, solved: Any) -> Any:
        """What the operator made, `(free variables and equalities, rows)`, as each row's own system would have."""
        import jax.numpy as jnp

        picked = jnp.take_along_axis(solved, self.index, axis=0)
        small = jnp.einsum("rst,tr->sr", self.middle, picked)
        return solved + jnp.einsum("nsr,sr->nr", self.columns, small.astype(self.columns.dtype)).astype(
            solved.dtype
        )

    def gram(self, lam: Any) -> Any:
        """By how much less than the operator's each row's own `A G A'` makes of multipliers, `(candidates, rows)`."""
        import jax.numpy as jnp

        return jnp.einsum("rcs,rst,rdt,dr->cr", self.along, self.middle, self.along, lam, optimize="optimal")


def switch_inputs(problem: Problem) -> Ints:
    """Positions of the inputs that are on or off: statuses of a grid's elements."""
    named = [problem.inputs[name] for name in _BLOCKS if name in (problem.inputs or {})]
    if problem.spec is None or not named:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.arange(part.start, part.stop) for part in named])


def find_switches(
    problem: Problem,
    rowwise: RowSolver,
    candidates: Candidates,
    centre: Centre,
    inputs: Ints,
    unchanged: float,
) -> Switches:
    """Differentiate at `centre` with each of `inputs` off, with the sparsity that the solver's model knows.

    A derivative that changes by less than `unchanged` has not changed.
    """
    from feasibly.problem._fixed import own_multipliers
    from feasibly.solve.system import switched_derivatives

    search = problem.with_fixed_bounds
    duals = candidates.expand(search, centre.equality[None], centre.lam[None])
    inequality = own_multipliers(problem, duals.inequality, duals.lower, duals.upper)[0][0]
    changes = switched_derivatives(
        rowwise.model, centre.x, centre.y, centre.equality, inequality, inputs, unchanged
    )
    found = [_places(bent, turned, problem.n_outputs) for bent, turned in changes]
    most = max((len(index) for index, _ in found), default=0)
    index = np.zeros((len(inputs), most), dtype=np.int64)
    change = np.zeros((len(inputs), most, most))
    for k, (places, part) in enumerate(found):
        index[k, : len(places)] = places
        change[k, : len(places), : len(places)] = part
    return Switches(np.asarray(inputs, dtype=np.int64), index, change)


def _places(bent: Any, turned: Any, outputs: int) -> tuple[Ints, Array]:
    """Where the Hessian and the equalities' Jacobian change, and by what: one symmetric matrix."""
    rows = np.concatenate([bent[0], outputs + turned[0]])
    columns = np.concatenate([bent[1], turned[1]])
    values = np.concatenate([bent[2], turned[2]])
    places = np.unique(np.concatenate([rows, columns]))
    matrix = np.zeros((len(places), len(places)))
    i, j = np.searchsorted(places, rows), np.searchsorted(places, columns)
    matrix[i, j] = values
    across = rows >= outputs
    matrix[j[across], i[across]] = values[across]
    return places, matrix


def correct(
    switches: Switches,
    position: Ints,
    free: int,
    inverse: Array,
    response: Array,
    pivoted: tuple[Pivoted, Pivoted],
) -> Correction:
    """What an operator's matrices need for every switch.

    Args:
        switches: what changes.
        position: of each output among the free variables; -1 for fixed ones.
        free: how many of those there are.
        inverse: `inv(K)`, over free variables and equalities.
        response: `inv(K) A'`, the response to the candidates' multipliers.
        pivoted: the complementarity problem.
    """
    whole = np.concatenate([position, free + np.arange(len(inverse) - free)])
    index = whole[switches.index]
    change = np.where((index >= 0)[:, :, None] & (index >= 0)[:, None, :], switches.change, 0.0)
    index = np.maximum(index, 0)
    places = index.shape[1]
    here = inverse[index[:, :, None], index[:, None, :]]
    middle = np.linalg.solve(np.eye(places) + change @ here, change)
    along = np.swapaxes(response[index], 1, 2)  # A inv(K) U, candidates first
    none = np.zeros((1, places), dtype=np.int64)
    return Correction(
        inputs=switches.inputs,
        index=np.concatenate([none, index]),
        middle=np.concatenate([np.zeros((1, places, places)), middle]),
        along=np.concatenate([np.zeros((1, *along.shape[1:])), along]),
        bordered=(border(pivoted[0], along, middle), border(pivoted[1], along, middle)),
    )
