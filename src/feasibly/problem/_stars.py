"""Three-winding transformers as a star: a bus of their own and a branch to each winding."""

from __future__ import annotations

from typing import Any

import numpy as np

from feasibly.problem.errors import Fault

LOW, HIGH = 0.5, 1.5
"""Voltage limits of a star point, which is nobody's busbar: wide enough to bind nowhere."""

Elements = list[dict[str, Any]]


def star_points(network: Any, base: float, faults: list[Fault]) -> tuple[Elements, Elements, Elements]:
    """Buses, branches and shunts that stand for the three-winding transformers in service.

    Impedances between two windings each become those from a winding to the star: `z1 = (z12 + z31 - z23) / 2`. The
    magnetising admittance stands at the first winding.
    """
    buses: Elements = []
    branches: Elements = []
    shunts: Elements = []
    number = max((int(bus["id"]) for bus in network.buses), default=0)
    for row, one in enumerate(network.transformers_3w, start=1):
        if not one.get("in_service", True):
            continue
        number += 1
        z = [complex(pair["r"], pair["x"]) * base / (pair["base_mva"] or base) for pair in one["z"]]
        if len(z) != 3 or not np.isfinite(z).all():
            faults.append(Fault(f"three-winding transformer {row}", "needs three impedances, all numbers"))
            continue
        buses.append({"id": number, "kind": "PQ", "vmin": LOW, "vmax": HIGH, "va": 0.0})
        legs = ((z[0] + z[2] - z[1]) / 2, (z[0] + z[1] - z[2]) / 2, (z[1] + z[2] - z[0]) / 2)
        for winding, leg in zip(one["windings"], legs, strict=True):
            branches.append(
                {"from_id": winding["bus"], "to_id": number, "r": leg.real, "x": leg.imag, "g_fr": 0.0, "b_fr": 0.0,
                 "g_to": 0.0, "b_to": 0.0, "tap": winding["tap"], "shift": winding["shift"], "in_service": True,
                 "rate_a": winding["rate_a"], "c_rating_a": None, "angmin": 0.0, "angmax": 0.0}
            )  # fmt: skip
        if one["mag_g"] or one["mag_b"]:
            bus = one["windings"][0]["bus"]
            shunts.append(
                {"bus": bus, "g": one["mag_g"] * base, "b": one["mag_b"] * base, "in_service": True}
            )
    return buses, branches, shunts
