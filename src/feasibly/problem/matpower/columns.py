"""MATPOWER's named columns: what `idx_bus` and its kin hand back, in their order."""

from __future__ import annotations

from collections.abc import Mapping


def _table(names: str) -> tuple[tuple[str, int], ...]:
    """`A B=5 C`: numbered from one, or from where a number is given."""
    found, number = [], 0
    for entry in names.split():
        name, _, given = entry.partition("=")
        number = int(given) if given else number + 1
        found.append((name, number))
    return tuple(found)


INDICES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "idx_bus": _table(
        "PQ PV REF NONE BUS_I=1 BUS_TYPE PD QD GS BS BUS_AREA VM VA BASE_KV ZONE VMAX VMIN LAM_P LAM_Q MU_VMAX MU_VMIN"
    ),
    "idx_brch": _table(
        "F_BUS T_BUS BR_R BR_X BR_B RATE_A RATE_B RATE_C TAP SHIFT BR_STATUS PF=14 QF PT QT MU_SF MU_ST "
        "ANGMIN=12 ANGMAX MU_ANGMIN=20 MU_ANGMAX"
    ),
    "idx_gen": _table(
        "GEN_BUS PG QG QMAX QMIN VG MBASE GEN_STATUS PMAX PMIN MU_PMAX=22 MU_PMIN MU_QMAX MU_QMIN "
        "PC1=11 PC2 QC1MIN QC1MAX QC2MIN QC2MAX RAMP_AGC RAMP_10 RAMP_30 RAMP_Q APF"
    ),
    "idx_cost": _table("PW_LINEAR POLYNOMIAL MODEL=1 STARTUP SHUTDOWN NCOST COST"),
}
"""By the function that hands them back: each name and its number, in the order of the outputs."""
