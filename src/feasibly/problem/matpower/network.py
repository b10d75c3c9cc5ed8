"""The elements of a grid file, by the names that powerio gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feasibly.problem.matpower.linear import Linear

Element = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """The elements of a file under the names that powerio gives them: MW, Mvar, degrees, per unit."""

    base_mva: float
    buses: Sequence[Element] = ()
    generators: Sequence[Element] = ()
    loads: Sequence[Element] = ()
    shunts: Sequence[Element] = ()
    branches: Sequence[Element] = ()
    hvdc: Sequence[Element] = ()
    storage: Sequence[Element] = ()
    transformers_3w: Sequence[Element] = ()
    static_var_compensators: Sequence[Element] = ()
    switches: Sequence[Element] = ()
    source_format: str = "matpower"
    linear: Linear | None = None
    """Rows beyond those of the elements."""
