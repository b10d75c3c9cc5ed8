"""Islands: each needs a reference for its angles, and power to balance its load with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feasibly.problem.errors import Fault

Element = Mapping[str, Any]
Numbered = Sequence[tuple[int, Element]]


def split_islands(
    buses: Sequence[Element],
    kept: Mapping[str, Numbered],
    links: Numbered,
    faults: list[Fault],
    warnings: list[str],
) -> list[Element]:
    """The buses to model, each island with a reference.

    An island without one gets its largest generator's bus, which is told of; one with neither generators nor anything
    that draws power is left out; one with load alone is a fault.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(buses)
    if n == 0:
        faults.append(Fault("buses", "there is none in service"))
        return []
    place = {int(bus["id"]): i for i, bus in enumerate(buses)}
    ends = [(place[b["from_id"]], place[b["to_id"]]) for _, b in [*kept["branch"], *links]]
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, label = connected_components(joined, directed=False)
    most = np.full(n, -np.inf)
    for _, g in kept["generator"]:
        size = g["pmax"] if g["pmax"] is not None and not np.isnan(g["pmax"]) else -1e30
        most[place[g["bus"]]] = max(most[place[g["bus"]]], size)
    draws = {place[e["bus"]] for kind in ("load", "shunt") for _, e in kept[kind]}
    draws |= {place[line[end]] for _, line in kept["DC line"] for end in ("from_id", "to_id")}
    found = [dict(bus) for bus in buses]
    gone: set[int] = set()
    order = np.argsort(label, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        references = [i for i in members.tolist() if buses[i]["kind"] == "REF"]
        name = f"island of bus {buses[int(members[0])]['id']}"
        shown = ", ".join(str(buses[i]["id"]) for i in members[:5]) + (", ..." if len(members) > 5 else "")
        powered = bool(np.isfinite(most[members]).any())
        if len(references) > 1:
            listed = ", ".join(str(buses[i]["id"]) for i in references)
            angles = {float(buses[i].get("va") or 0.0) for i in references}
            if len(angles) > 1:
                what = f"buses {listed} are all references, at different angles; leave one of them"
                faults.append(Fault(name, what))
            warnings.append(f"buses {listed} of one island are all references; every one is held at angle 0")
        if references or powered:
            if not references:
                chosen = int(members[np.argmax(most[members])])
                found[chosen]["kind"] = "REF"
                warnings.append(
                    f"{name}: has no reference bus (buses {shown}); bus {buses[chosen]['id']}, that of its "
                    "largest generator, is taken"
                )
        elif draws & set(members.tolist()):
            faults.append(Fault(name, f"has load or shunts and no generator in service (buses {shown})"))
        else:
            gone |= set(members.tolist())
            warnings.append(f"{name}: nothing generates or draws power there (buses {shown}); left out")
    return [bus for i, bus in enumerate(found) if i not in gone]
