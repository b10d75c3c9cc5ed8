"""Links of a PyPSA network between AC buses: DC lines, which give at one end what they take at the other, less losses.

As in PyPSA, what a link loses forwards it gains backwards (`p_min_pu` below zero with an `efficiency` below 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem._gather import Gathering
from feasibly.problem.errors import Fault

Floats = NDArray[np.float64]


def unmodelled_links(links: Any, buses: Any) -> Iterator[Fault]:
    """What a link does that a DC line cannot."""
    for name in links.index:
        row = links.loc[name]
        more = [
            end
            for end in links
            if end.startswith("bus") and end[3:].isdigit() and int(end[3:]) > 1 and row[end]
        ]
        if more:
            yield Fault(f"Link {name}", f"has more than two ends ({', '.join(more)})")
        if row["p_nom_extendable"]:
            yield Fault(f"Link {name}", "its p_nom is to be decided; fix it, as fix_optimal_capacities does")
        if row["committable"]:
            yield Fault(f"Link {name}", "is committable, and whether links run is not decided here")
        for end in ("bus0", "bus1"):
            if row[end] not in buses:
                yield Fault(f"Link {name}", f"is at bus {row[end]!r}, which does not exist")


def join_links(
    links: Any,
    at: Callable[[str, str, Any], Floats],
    gathering: Gathering,
    place: Mapping[Any, int],
    faults: list[Fault],
) -> None:
    """Add links to what is gathered: `p0` leaves at `bus0`, `efficiency` times it arrives at `bus1`, `p0` costs.

    Args:
        links: the rows in service.
        at: `(component, attribute, names)` to the values of the snapshot.
        gathering: where they go.
        place: buses by name to positions.
        faults: what is found joins it.
    """
    if not len(links):
        return
    nominal = links["p_nom"].to_numpy(dtype=np.float64)
    low, high = (nominal * at("Link", f"p_{end}_pu", links.index) for end in ("min", "max"))
    fixed = at("Link", "p_set", links.index)
    low, high = (np.where(np.isfinite(fixed), fixed, limit) for limit in (low, high))
    share = at("Link", "efficiency", links.index)
    costs = [at("Link", f"marginal_cost{order}", links.index) for order in ("_quadratic", "")]
    lines = []
    for i, name in enumerate(links.index):
        if not (np.isfinite(share[i]) and share[i] > 0.0):
            faults.append(
                Fault(f"Link {name}", f"its efficiency must be a positive number, got {share[i]:g}")
            )
        # Limits hold at bus0 in PyPSA; a DC line's on what flows backwards holds at its other end.
        ends = [limit if limit >= 0.0 else limit * share[i] for limit in (low[i], high[i])]
        lines.append((i + 1, {
            "from_id": links.at[name, "bus0"], "to_id": links.at[name, "bus1"], "pmin": ends[0], "pmax": ends[1],
            "pf": min(max(low[i], 0.0), high[i]), "loss0": 0.0, "loss1": 1.0 - share[i],
            "qminf": 0.0, "qmaxf": 0.0, "qmint": 0.0, "qmaxt": 0.0,
            "cost": {"model": 2, "coeffs": [costs[0][i], costs[1][i], 0.0]},
        }))  # fmt: skip
    gathering.dc_lines(lines, place, False, faults)
