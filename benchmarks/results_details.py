"""The pages behind docs/results.md: every comparison of a problem, and everything else that was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feasibly._words import timing
from feasibly.report.beside import HOW_TO_READ, Line, beside_sheet, count_verdicts, put_beside
from feasibly.report.files import ReportError, read_json
from feasibly.report.published import METRICS, TABLES, PublishedTable
from feasibly.report.render import TIE, figure, notes_of, sheet_of
from feasibly.report.rows import as_now, asked_of
from feasibly.report.sheet import to_markdown
from feasibly.train.registry import DEFAULT_METHOD

LONGEST = 16
"""A list with more entries than this is counted, not printed."""

SHORT = {
    "gap_percent": "gap",
    "max_eq": "max eq",
    "mean_eq": "mean eq",
    "max_ineq": "max ineq",
    "mean_ineq": "mean ineq",
}

_MACHINE = (
    "machine",
    "processor",
    "cores",
    "cores_used",
    "at_a_time",
    "python",
    "numpy",
    "casadi",
    "commit",
    "versions",
)


def find_table(slug: str) -> PublishedTable | None:
    """The published table with that slug, or `None`."""
    return next((table for tables in TABLES.values() for table in tables if table.slug == slug), None)


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Every result by name, in order."""
    found = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: (_size(path.stem), path.stem)):
        document = read_json(path)
        if not isinstance(document, dict):
            document = {"entries": document}
        elif path.stem.startswith("compare-"):
            document["rows"] = _in_full(document)
        found[path.stem] = document
    return found


def _in_full(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a comparison; `train_seconds` counts all of a training where the file says what that was.

    Older rows left out the constants of conditioning, which every method needs.
    """
    seconds = document.get("seconds", {})
    rows = [as_now(row) for row in document.get("rows") or []]
    for row in rows:
        spent = seconds.get(f"{asked_of(row)}.{row['seed']}", {}).get("total")
        if spent is not None and row.get("train_seconds") is not None:
            row["train_seconds"] = max(spent, row["train_seconds"])
    return rows


def _size(stem: str) -> int:
    """Grids in order of size."""
    digits = re.search(r"\d+", stem)
    return int(digits[0]) if digits and stem.startswith("compare-") else 0


def problem_page(problem: str, documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Every comparison on one problem."""
    text = [f"# {problem}", "", "[All results](../results.md)", ""]
    for name, document in documents.items():
        text += _comparison(name, document)
    return "\n".join(text).rstrip() + "\n"


def other_page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """What is no comparison: labelling, answering, promises, interruptions."""
    text = ["# Everything else that was measured", "", "[All results](../results.md)", ""]
    for name, document in documents.items():
        text += _other(name, document)
    return "\n".join(text).rstrip() + "\n"


def _comparison(name: str, document: Mapping[str, Any]) -> list[str]:
    rows = document.get("rows") or []
    if not rows:
        raise ReportError(f"{name}.json has no rows; make it again")
    plan = document.get("plan", {})
    scale = document.get("scale")
    stated = "" if scale is None else f"Scale {scale:.2g}: " if scale < 1.0 else "Full scale: "
    counts = sorted({row["count"] for row in rows if "failed" not in row})
    seeds = len({row["seed"] for row in rows})
    text = [
        f"## {name}",
        "",
        f"{stated}{plan.get('labels', rows[0]['labels']):,} labels, {timing(rows[0]['budget_seconds'])} a training, "
        f"{' to '.join(f'{n:,}' for n in sorted({counts[0], counts[-1]})) if counts else 'no'} unseen instances, "
        f"{seeds} seed{'s' if seeds > 1 else ''}. {_provenance(document)}",
        "",
    ]
    for sentence in (*document.get("departures", ()), *document.get("remarks", ())):
        text += [f"- {sentence}"]
    if document.get("departures") or document.get("remarks"):
        text.append("")
    table = find_table(str(document.get("published", "")))
    if table is None:
        text += [to_markdown(sheet_of(rows))]
    else:
        lines = put_beside(table, rows)
        why = document.get("why", {})
        text += [
            _verdict(lines, table),
            "",
            HOW_TO_READ,
            "",
            to_markdown(beside_sheet(lines)),
            *_behind(lines, why),
        ]
    failures = sorted(
        {f"- {row['method']}, {row['answer']} failed: {row['failed']}" for row in rows if "failed" in row}
    )
    said = [
        *failures,
        *(f"- {words}" for words in notes_of(rows)),
    ]
    return [*text, *said, *([""] if said else [])]


def _verdict(lines: Sequence[Line], table: PublishedTable) -> str:
    own, default = count_verdicts(lines), [line for line in lines if line.method == DEFAULT_METHOD]
    words = (
        f"Of the paper's own rows, reproduced here, {own['better']} cells are better than published, {own['equal']} "
        f"equal and {own['worse']} worse ({table.source})."
    )
    best = next((line for line in default if line.answer == "conditioned" and not line.failed), None)
    if best is not None:
        words += f" The default against the best published value of each column: {_ahead(best)}."
    return words


def _ahead(line: Line) -> str:
    """By how much a line is ahead, or behind, column by column."""
    words = []
    for metric in METRICS:
        cell = line.cells[metric]
        if not cell.verdict or cell.published is None:
            continue
        if cell.published > 0 and cell.verdict != "equal":
            ratio = cell.published / max(cell.measured, TIE)
            least = "at least " if cell.measured < TIE else ""
            said = f"{least}{ratio:,.3g} x smaller" if ratio >= 1 else f"{1 / ratio:,.3g} x larger"
        else:
            said = "equal" if cell.verdict == "equal" else cell.verdict
        words.append(f"{SHORT[metric]} {said}")
    return ", ".join(words)


def _behind(lines: Sequence[Line], why: Mapping[str, str]) -> list[str]:
    """Cells of the paper's rows in which ours are worse, by name, and `why`, by method."""
    text = []
    for line in lines:
        cells = [
            f"{SHORT[metric]} {figure(cell.measured)} against {cell.published:g}"
            for metric, cell in line.cells.items()
            if cell.verdict == "worse"
        ]
        if line.label and not line.summary.note and not line.summary.stands_in and cells:
            text.append(f"- {line.label}: {', '.join(cells)}. {why.get(line.method, '')}".rstrip())
    return ["Behind the published figure:", "", *text, ""] if text else []


def _provenance(document: Mapping[str, Any]) -> str:
    processor = document.get("processor") or document.get("machine") or "an unnamed machine"
    used, cores = document.get("cores_used"), document.get("cores")
    commit = str(document.get("commit") or "")
    short, _, changed = commit.partition("+")
    words = f"Measured on {processor}"
    if cores:
        words += f", {used} of {cores} cores" if used else f", {cores} cores"
    if short:
        words += f", commit `{short[:10]}`" + (" with changes" if changed else "")
    return words + "."


def _other(name: str, document: Mapping[str, Any]) -> list[str]:
    text = [f"## {document.get('benchmark', name)} (`{name}.json`)", ""]
    if any(document.get(key) for key in ("processor", "machine", "commit")):
        text += [_provenance(document), ""]
    plain = {k: v for k, v in document.items() if k not in (*_MACHINE, "benchmark")}
    scalars = {k: v for k, v in plain.items() if not isinstance(v, dict | list)}
    nested = {k: v for k, v in plain.items() if isinstance(v, dict) and _is_flat(v)}
    if scalars or nested:
        text += ["| | |", "|---|---|"]
        text += [f"| {_name(k)} | {_show(v)} |" for k, v in scalars.items()]
        text += [
            f"| {_name(k)} | {', '.join(f'{_name(i)} {_show(j)}' for i, j in v.items())} |"
            for k, v in nested.items()
        ]
        text.append("")
    for key, value in plain.items():
        if isinstance(value, list) and value:
            text += _listing(key, value)
        elif isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
            text += _listing(key, [{"": name} | inner for name, inner in value.items()])
        elif isinstance(value, dict) and not _is_flat(value):
            text += [f"{_name(key)}: {len(value)} entries in the file.", ""]
    return text


def _listing(key: str, value: list[Any]) -> list[str]:
    if not all(isinstance(entry, dict) for entry in value):
        return [f"{_name(key)}: {', '.join(_show(v) for v in value[:LONGEST])}", ""]
    entries = [_flattened(entry) for entry in value]
    columns = list(dict.fromkeys(column for entry in entries for column in entry))
    if len(entries) > LONGEST or not columns or len(columns) > 3 * LONGEST:
        return [f"{_name(key)}: {len(value)} entries in the file.", ""]
    cells = [[_show(entry.get(column)) for column in columns] for entry in entries]
    if len(columns) > 10:  # too wide to read: entries side by side instead
        head, *body = [[name, *values] for name, *values in zip(columns, *cells, strict=True)]
    else:
        head, body = columns, cells
    text = [f"{_name(key).capitalize()}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return [*text, *("| " + " | ".join(row) + " |" for row in body), ""]


def _flattened(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values inside values under joined names; lists are left to the file."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            found |= _flattened(value, f"{prefix}{_name(key)} ")
        elif not isinstance(value, list):
            found[f"{prefix}{_name(key)}"] = value
    return found


def _is_flat(value: Mapping[str, Any]) -> bool:
    return len(value) <= LONGEST and not any(isinstance(v, dict | list) for v in value.values())


def _name(key: str) -> str:
    return key.replace("_", " ")


def _show(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", r"\|")
