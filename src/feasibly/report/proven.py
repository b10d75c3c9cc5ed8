"""What is proven of single answers, drawn: gaps that lower bounds leave."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from feasibly.report.drawing import BLUE, RED, Drawing, new_figure, style


def draw_proven(gaps: ArrayLike, what: str = "") -> Drawing:
    """A histogram of proven gaps in per cent, one an instance, with the median and the largest beside it.

    Rows without a proof (not finite) are counted in the caption and not drawn.
    """
    every = np.asarray(gaps, dtype=np.float64)
    known = every[np.isfinite(every)]
    counts, edges = np.histogram(known, bins=min(max(len(known) // 5, 5), 40))
    with style():
        figure, (axis,) = new_figure(5.4, 3.0)
        if len(known):
            axis.stairs(counts, edges, fill=True, color=BLUE, alpha=0.75)
            axis.axvline(float(np.median(known)), color=RED, label="median")
            axis.legend(loc="upper right")
        axis.set_xlabel("proven gap (%)")
        axis.set_ylabel("instances")
    caption = "No instance has a proven bound."
    if len(known):
        caption = (
            f"How far each of {len(known)} answers{' by ' + what if what else ''} can be above the optimum at most: "
            f"half of them at most {np.median(known):.2g} %, none more than {known.max():.2g} %. This is proven for "
            "each instance, not estimated: no feasible answer costs less than its bound. What the relaxation behind "
            "it gives away is in it."
        )
    if len(known) < len(every):
        caption += f" {len(every) - len(known)} without a proof are left out."
    numbers = {"from": edges[:-1].tolist(), "to": edges[1:].tolist(), "instances": counts.tolist()}
    return Drawing(figure, numbers, "proven gap (%)", caption)
