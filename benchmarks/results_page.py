"""Write docs/results.md and README's table from benchmarks/results/*.json.

python benchmarks/results_page.py              write both
python benchmarks/results_page.py --check      say whether they are up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from feasibly.report.page import insert, readme_table, results_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE, README = ROOT / "docs" / "results.md", ROOT / "README.md"


def wanted() -> dict[Path, str]:
    """What the files should hold."""
    return {
        PAGE: results_page(RESULTS),
        README: insert(README.read_text(encoding="utf-8"), readme_table(RESULTS)),
    }


def main(check: bool) -> int:
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text("utf-8") != text]
    if not check:
        for path, text in wanted().items():
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
