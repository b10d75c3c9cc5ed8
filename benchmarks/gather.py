"""Several files of `learners.py`, one training each, as one comparison for benchmarks/results.

python benchmarks/gather.py FILE.json [...] --published table-2000 --cores 16 2 --at-a-time 8 --out FILE.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from feasibly._files import plain
from feasibly.report.files import ReportError, read_json, to_json
from results_details import find_table


def gather(
    files: list[Path],
    published: str,
    *,
    cores: tuple[int, int],
    at_a_time: int,
    remarks: list[str],
    why: dict[str, str],
) -> dict[str, Any]:
    """The rows of all files, which must belong together; `cores` the machine had, and each training used."""
    documents = [read_json(path) for path in files]
    table = find_table(published)
    if table is None:
        raise ReportError(f"the paper has no {published}")

    def settings(document: dict[str, Any]) -> Any:
        alike = {(row["budget_seconds"], row["labels"], row["count"]) for row in document["rows"]}
        return alike, *(document[key] for key in ("problem", "commit", "machine", "versions"))

    first = documents[0]
    for document, path in zip(documents, files, strict=True):
        if not document["rows"]:
            raise ReportError(f"{path} has no rows")
        if settings(document) != settings(first) or len(settings(first)[0]) != 1:
            raise ReportError(f"{path} was not measured like {files[0]}")
    rows = [row for document in documents for row in document["rows"]]
    budget = rows[0]["budget_seconds"]
    names = [f"{document['rows'][0]['method']}.{document['rows'][0]['seed']}" for document in documents]
    if len(set(names)) < len(names):
        raise ReportError(f"a training is there twice: {', '.join(names)}")
    trials = len({document["rows"][0]["seed"] for document in documents})
    device, beside = first["machine"].get("device", "cpu"), first["machine"]["processor"]
    card = device != "cpu"
    where = f"a graphics card that {at_a_time} trainings shared" if card else "one core"
    return {
        "benchmark": "compare",
        "machine": device if card else "x86_64",
        "processor": f"{device} ({beside} beside it)" if card else beside,
        "cores": cores[0],
        "cores_used": cores[1],
        "commit": first["commit"],
        "versions": first["versions"],
        "problem": first["problem"],
        "plan": {"budget": budget, "labels": rows[0]["labels"], "tests": rows[0]["count"]},
        "at_a_time": at_a_time,
        "published": published,
        "scale": budget / table.budget,
        "departures": [
            f"{budget:g} s a training, compilation included, on {where} (published: {table.budget:g} s, "
            f"{table.machine}); {trials} trial{'s' if trials > 1 else ''} (published: {table.runs}).",
            "Answers were timed once, so that the time of the first one (mean) has compiling in it.",
            f"{rows[0]['labels']:,} labels count validation; the paper's validation labels come on top.",
            "Max Ineq. counts bounds alone, as the published table does; All ineq. counts every inequality.",
        ],
        "remarks": remarks,
        "why": why,
        "rows": rows,
        "seconds": {
            name: {key: value for key, value in document["seconds"].items() if key != "conditioning"}
            for name, document in zip(names, documents, strict=True)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--published", required=True)
    parser.add_argument("--cores", nargs=2, type=int, required=True, metavar=("THERE", "USED"))
    parser.add_argument("--at-a-time", type=int, required=True, help="trainings that shared the card")
    parser.add_argument("--remark", action="append", default=[])
    parser.add_argument("--why", action="append", default=[], help="METHOD=WORDS, for cells that are behind")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    why = dict(pair.split("=", 1) for pair in args.why)
    found = gather(
        args.files,
        args.published,
        cores=tuple(args.cores),
        at_a_time=args.at_a_time,
        remarks=args.remark,
        why=why,
    )
    args.out.write_text(to_json(plain(found)))


if __name__ == "__main__":
    main()
