"""The nonconvex family of Donti et al. 2021 (DC3): min 1/2 y'Qy + p'sin(y) s.t. Ay = x, Gy <= h."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, ProblemError, is_whole


def nonconvex(variables: int, equalities: int, inequalities: int, seed: int = 17) -> Problem:
    """One random member of the family.

    Q is diagonal with entries from U[0, 1], p from U[0, 1], A and G standard normal, x from U[-1, 1], and
    h_i = sum_j |(G A^+)_ij|, which makes A^+ x feasible for every x in the box.

    Examples:
        >>> fb.nonconvex(variables=10, equalities=4, inequalities=6).name
        'nonconvex:10,4,6'
    """
    sizes = {"variables": variables, "equalities": equalities, "inequalities": inequalities}
    faults = [
        Fault(key, f"must be a whole number of at least 1, got {value!r}")
        for key, value in sizes.items()
        if not is_whole(value) or value < 1
    ]
    if not is_whole(seed) or not 0 <= seed < 2**64:
        faults.append(Fault("seed", f"must be a whole number of zero or more and below 2**64, got {seed!r}"))
    if not faults and equalities >= variables:
        what = f"{equalities} leave no freedom for {variables} variables; there must be fewer"
        faults.append(Fault("equalities", what))
    if faults:
        raise ProblemError(f"nonconvex problem ({variables}, {equalities}, {inequalities})", faults)
    random = np.random.Generator(np.random.Philox(key=seed))
    q = random.random(variables)
    p = random.random(variables)
    a = random.standard_normal((equalities, variables))
    g = random.standard_normal((inequalities, variables))
    h = np.abs(g @ np.linalg.pinv(a)).sum(axis=1)

    def objective(x: Any, y: Any) -> Any:
        return jnp.sum(0.5 * q * y * y + p * jnp.sin(y))

    def equality(x: Any, y: Any) -> Any:
        return jnp.dot(a, y) - x

    def inequality(x: Any, y: Any) -> Any:
        return jnp.dot(g, y) - h

    return Problem(
        objective,
        np.full(variables, -np.inf),
        np.full(variables, np.inf),
        equality=equality,
        inequality=inequality,
        box=(np.full(equalities, -1.0), np.full(equalities, 1.0)),
        name=f"nonconvex:{variables},{equalities},{inequalities}",
        spec={"family": "nonconvex", **sizes, "seed": seed},
    )
