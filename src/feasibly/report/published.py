"""The paper's tables as data, each with where it stands and how it was made.

Source: Pareek, Jayakumar, Sundar, Misra and Deka, *Optimization Proxies using Limited Labeled Data and Training Time*
(ICML 2025). Values as printed. The tables on grids count bounds alone as inequalities, not thermal or angle limits (as
the authors' public code does), so their Max Ineq. stands beside our `max_bound`. They are the best of five trials of
the stated time each; validation labels came on top of the stated ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

METRICS = ("gap_percent", "max_eq", "mean_eq", "max_ineq", "mean_ineq")


@dataclass(frozen=True)
class PublishedRow:
    """A row as the paper prints it, and the names here for what it is."""

    label: str
    method: str
    answer: str
    values: Mapping[str, float]
    """By metric, those that the paper gives."""
    digits: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 3))
    """Places after the point as printed, which decide what counts as equal."""


@dataclass(frozen=True)
class PublishedTable:
    """A table and the settings it was made with."""

    name: str
    """As `reproduce` knows it."""
    source: str
    case: str
    labels: int
    unlabelled: int
    budget: float
    tests: int
    runs: str
    machine: str
    rows: tuple[PublishedRow, ...]
    bounds_only: bool = True
    """Whether its inequalities are the bounds alone."""

    @property
    def slug(self) -> str:
        """A name of its own, for files: a name that `reproduce` knows may stand for several tables."""
        if self.name == "table-nonconvex":
            return f"{self.name}-{self.case.partition(':')[2].replace(',', '-')}"
        if self.name == "robustness-118":
            return f"{self.name}-{self.budget / 60.0:.0f}min-{self.labels}"
        return self.name

    def find(self, method: str, answer: str) -> PublishedRow | None:
        """The row of a method and answer, if the paper has one."""
        return next((row for row in self.rows if (row.method, row.answer) == (method, answer)), None)

    def best(self, metric: str) -> PublishedRow | None:
        """The row with the smallest value of a metric."""
        having = [row for row in self.rows if metric in row.values]
        return min(having, key=lambda row: row.values[metric]) if having else None

    def ours(self, metric: str) -> str:
        """The name here of what the paper's column counts."""
        return "max_bound" if self.bounds_only and metric == "max_ineq" else metric


_LABELS = (
    ("Sandwich BNN SvP", "sandwich-bnn", "svp"),
    ("Sandwich BNN", "sandwich-bnn", "mean"),
    ("Supervised BNN SvP", "supervised-bnn", "svp"),
    ("Supervised BNN", "supervised-bnn", "mean"),
    ("Sandwich DNN", "sandwich-dnn", "mean"),
    ("Naïve MAE", "mae", "mean"),
    ("Naïve MSE", "mse", "mean"),
    ("MAE + Penalty", "mae-penalty", "mean"),
    ("MSE + Penalty", "mse-penalty", "mean"),
    ("LD + MAE", "lagrangian-dual", "mean"),
)


def _rows(*values: tuple[float, ...]) -> tuple[PublishedRow, ...]:
    return tuple(
        PublishedRow(*names, dict(zip(METRICS, row, strict=True)))
        for names, row in zip(_LABELS, values, strict=True)
    )


def _grid(name: str, source: str, case: str, rows: tuple[PublishedRow, ...]) -> PublishedTable:
    best = "best of five trials for the BNNs"
    return PublishedTable(name, source, case, 512, 2048, 600.0, 1000, best, "Apple M1 Max CPU, 32 GB", rows)


TABLE_57 = _grid(
    "table-57", "table of case57, section 5", "pglib:case57_ieee",
    _rows(
        (0.928, 0.027, 0.006, 0.000, 0.000),
        (0.964, 0.045, 0.005, 0.000, 0.000),
        (3.195, 0.083, 0.011, 0.000, 0.000),
        (3.255, 0.130, 0.011, 0.000, 0.000),
        (2.878, 0.358, 0.014, 0.006, 0.000),
        (4.029, 0.518, 0.057, 0.000, 0.000),
        (3.297, 0.541, 0.075, 0.000, 0.000),
        (3.918, 0.370, 0.037, 0.000, 0.000),
        (3.748, 0.298, 0.039, 0.000, 0.000),
        (3.709, 0.221, 0.033, 0.000, 0.000),
    ),
)  # fmt: skip
TABLE_118 = _grid(
    "table-118", "table of case118, section 5", "pglib:case118_ieee",
    _rows(
        (1.484, 0.089, 0.018, 0.008, 0.000),
        (1.485, 0.100, 0.016, 0.008, 0.000),
        (1.568, 0.147, 0.022, 0.013, 0.000),
        (1.567, 0.205, 0.020, 0.013, 0.000),
        (3.298, 0.585, 0.034, 0.158, 0.000),
        (1.638, 2.166, 0.187, 0.000, 0.000),
        (1.622, 3.780, 0.242, 0.000, 0.000),
        (1.577, 1.463, 0.102, 0.000, 0.000),
        (1.563, 2.637, 0.125, 0.000, 0.000),
        (1.565, 1.284, 0.083, 0.000, 0.000),
    ),
)  # fmt: skip
TABLE_500 = _grid(
    "table-500", "table of case500, appendix on larger systems", "pglib:case500_goc",
    _rows(
        (2.009, 0.770, 0.066, 0.190, 0.000),
        (2.002, 0.781, 0.056, 0.191, 0.000),
        (1.191, 2.204, 0.088, 0.141, 0.000),
        (1.191, 2.401, 0.072, 0.140, 0.000),
        (1.782, 13.800, 0.268, 0.2707, 0.000),
        (1.208, 20.818, 0.905, 0.000, 0.000),
        (1.201, 24.089, 1.031, 0.000, 0.000),
        (1.205, 11.833, 0.580, 0.000, 0.000),
        (1.215, 10.314, 0.475, 0.000, 0.000),
        (1.279, 11.166, 0.532, 0.000, 0.000),
    ),
)  # fmt: skip
TABLE_2000 = _grid(
    "table-2000", "table of case2000, appendix on larger systems", "pglib:case2000_goc",
    _rows(
        (0.514, 5.114, 0.324, 0.196, 0.000),
        (0.503, 5.409, 0.262, 0.187, 0.000),
        (0.461, 4.107, 0.238, 0.917, 0.000),
        (0.451, 4.225, 0.193, 0.922, 0.000),
        (54.505, 27.747, 1.659, 1.228, 0.339),
        (56.365, 43.529, 4.392, 0.000, 0.000),
        (56.366, 43.085, 4.261, 0.000, 0.000),
        (56.349, 19.591, 1.055, 0.000, 0.000),
        (56.377, 12.592, 0.682, 0.000, 0.000),
        (57.257, 18.870, 0.647, 0.000, 0.000),
    ),
)  # fmt: skip


_THREE = {"max_eq": 3, "max_ineq": 3}
_ROBUST = dict(zip(METRICS, (4, 4, 5, 5, 6), strict=True))


def _nonconvex(
    sizes: str, budget: float, supervised: tuple[float, ...], sandwich: tuple[float, ...]
) -> PublishedTable:
    keys = ("max_eq", "max_ineq", "gap_percent")
    rows = tuple(
        PublishedRow(
            label, method, "mean", dict(zip(keys, values, strict=True)), {"gap_percent": gap} | _THREE
        )
        for label, method, values, gap in (
            ("BNN-Supervised", "supervised-bnn", supervised, 1),
            ("BNN-Sandwich", "sandwich-bnn", sandwich, 2 if sandwich[2] < 1.0 else 1),
        )
    )
    return PublishedTable(
        "table-nonconvex", "table of the appendix on a non-OPF dataset", f"nonconvex:{sizes}", 4096, 512, budget, 100,
        "mean of three runs", "Google Colab, Intel Xeon 2.2 GHz", rows, bounds_only=False,
    )  # fmt: skip


NONCONVEX_70 = _nonconvex("70,20,50", 800.0, (0.484, 0.170, 2.6), (0.298, 0.109, 7.1))
NONCONVEX_20 = _nonconvex("20,10,20", 400.0, (0.264, 0.108, 1.4), (0.114, 0.000, 0.07))


def _robust(minutes: int, labels: int, *values: tuple[float, ...]) -> PublishedTable:
    kinds = (
        ("Sandwich BNN SvP", "sandwich-bnn", "svp"),
        ("Supervised BNN SvP", "supervised-bnn", "svp"),
        ("Sandwich BNN", "sandwich-bnn", "mean"),
        ("Supervised BNN", "supervised-bnn", "mean"),
    )
    rows = tuple(
        PublishedRow(*names, dict(zip(METRICS, row, strict=True)), _ROBUST)
        for names, row in zip(kinds, values, strict=True)
    )
    return PublishedTable(
        "robustness-118", "tables of averages over five trials, appendix on robustness", "pglib:case118_ieee", labels,
        2048, 60.0 * minutes, 1000, "mean of five trials", "Apple Mac Mini M4, 24 GB", rows,
    )  # fmt: skip


ROBUSTNESS_118 = (
    _robust(
        10, 512,
        (1.5071, 0.09438, 0.01912, 0.01453, 0.000054), (1.5807, 0.1644, 0.02323, 0.01524, 0.000061),
        (1.5054, 0.1194, 0.01710, 0.01426, 0.000053), (1.5780, 0.2204, 0.02215, 0.01502, 0.000060),
    ),
    _robust(
        10, 1024,
        (1.5194, 0.08693, 0.01865, 0.01415, 0.000047), (1.5562, 0.1108, 0.02025, 0.01679, 0.000065),
        (1.5188, 0.1064, 0.01654, 0.01376, 0.000046), (1.5573, 0.1499, 0.01888, 0.01652, 0.000064),
    ),
    _robust(
        10, 2048,
        (1.5297, 0.08532, 0.01855, 0.01288, 0.000042), (1.5387, 0.08686, 0.01843, 0.01912, 0.000072),
        (1.5284, 0.09725, 0.01623, 0.01251, 0.000041), (1.5377, 0.1081, 0.01664, 0.01887, 0.000071),
    ),
    _robust(
        15, 512,
        (1.5305, 0.1041, 0.01998, 0.01285, 0.000046), (1.5904, 0.1755, 0.02403, 0.01446, 0.000060),
        (1.5298, 0.1349, 0.01810, 0.01255, 0.000045), (1.5905, 0.2281, 0.02318, 0.01425, 0.000060),
    ),
    _robust(
        15, 1024,
        (1.5097, 0.08948, 0.01872, 0.01442, 0.000049), (1.5615, 0.1201, 0.02075, 0.01892, 0.000075),
        (1.5074, 0.1106, 0.01661, 0.01407, 0.000048), (1.5594, 0.1609, 0.01957, 0.01868, 0.000074),
    ),
    _robust(
        15, 2048,
        (1.4691, 0.08005, 0.01709, 0.01170, 0.000042), (1.5534, 0.08776, 0.01839, 0.01906, 0.000073),
        (1.4687, 0.09156, 0.01474, 0.01135, 0.000041), (1.5540, 0.1114, 0.01690, 0.01890, 0.000072),
    ),
)  # fmt: skip
"""Minutes and labels: 10 x (512, 1024, 2048), then 15. The text says 5048 once, its tables 2048."""

TABLES: dict[str, tuple[PublishedTable, ...]] = {
    "table-57": (TABLE_57,),
    "table-118": (TABLE_118,),
    "table-500": (TABLE_500,),
    "table-2000": (TABLE_2000,),
    "table-nonconvex": (NONCONVEX_20, NONCONVEX_70),
    "robustness-118": ROBUSTNESS_118,
}


VOLTAGE_BOUNDS_118 = {"mpv-bernstein": 0.010, "empirical-bernstein": 0.018, "hoeffding": 0.064}
"""Largest half-width over the buses of case118, voltage magnitude, p.u.; section 5. R is not stated there."""


def judge(measured: float, published: float, digits: int = 3) -> str:
    """`better`, `equal` or `worse`, to the digits that were published: a printed 0.027 is anything that rounds to it.

    A measured value that is not finite is worse.
    """
    if not math.isfinite(measured):
        return "worse"
    half = 0.5 * 10.0**-digits
    if measured < published - half:
        return "better"
    return "equal" if measured < published + half else "worse"
