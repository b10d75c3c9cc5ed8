"""The summary of a screening as one HTML page: no script, no other file."""

from __future__ import annotations

import base64
import html
import itertools
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly._words import percent
from feasibly.answer.record import AnswerOutcome

if TYPE_CHECKING:
    from feasibly.screening.run import Screening

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHOWN = 15
"""Rows of a table; the store has the rest."""
_WIDTH, _HEIGHT = 1100, 240
_MAP = (1100, 900)
"""Most pixels of the heat map; more hours or outages share one, which shows the worst of them."""

_SERVED = (AnswerOutcome.OK, AnswerOutcome.OUTSIDE)
_UNSERVED = (31, 31, 31), (160, 160, 160), (255, 255, 255)
"""Colours of cells that cannot be served, that are islanded, and that are not answered yet."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d5dbe1; --paper: #ffffff; --mark: #0b6bcb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #9aa5b1; --line: #39424c; --paper: #14181d; --mark: #6cb2ff; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, figcaption { color: var(--soft); max-width: 46rem; } figure { margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left; }
td.n, th.n { text-align: right; }
.side { display: flex; flex-wrap: wrap; gap: 0 3rem; }
img { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .base { stroke: var(--soft); } svg .worst { stroke: var(--mark); } svg polyline { fill: none; stroke-width: 1.5; }
"""


def render(result: Screening) -> str:
    """The page of a screening."""
    outcome, cost = result.outcome, result.cost
    served = np.isin(outcome, [kind.value for kind in _SERVED])
    name = html.escape(str(result.question["problem"]))
    cells, fine = outcome.size, int(served.sum())
    parts = [
        f"<h1>{name}: {result.hours:,} hours under {len(result.outages) - 1:,} single outages</h1>",
        f"<p>{cells:,} optimal power flows, {fine:,} of them served ({percent(fine / cells)}). "
        f"{_unfinished(result)}Answered by <code>{html.escape(str(result.question['answer']))}</code>; hours count "
        "from 0.</p>",
        _outcomes(result),
        "<h2>Outages that cannot be served, and when</h2>",
        _unserved(result, outcome),
        "<h2>Hours by outages</h2>",
        _heat_map(result, outcome, cost, served),
        "<h2>Cost of security, by hour</h2>",
        _security(cost, served),
        "<h2>Where it is tightest</h2>",
        '<div class="side">',
        _voltages(result, result.bus_lowest, lowest=True),
        _voltages(result, result.bus_highest, lowest=False),
        _loadings(result),
        "</div>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: outages</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _unfinished(result: Screening) -> str:
    return (
        "" if result.finished else "<strong>The screening is not finished; some hours are missing.</strong> "
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose columns after the first are numbers unless they are texts."""

    def cell(value: object, tag: str, number: bool) -> str:
        return f"<{tag}{' class=n' if number else ''}>{html.escape(str(value))}</{tag}>"

    listed = [list(row) for row in rows]
    numbers = [bool(listed) and not isinstance(listed[0][k], str) for k in range(len(head))]
    top = "".join(cell(word, "th", number) for word, number in zip(head, numbers, strict=True))
    body = "".join(
        "<tr>"
        + "".join(cell(value, "td", number) for value, number in zip(row, numbers, strict=True))
        + "</tr>"
        for row in listed
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _outcomes(result: Screening) -> str:
    advice = {kind.name: kind.advice for kind in AnswerOutcome}
    rows = [(name, count, advice.get(name, "")) for name, count in result.outcomes().items()]
    return _table(("outcome", "cells", ""), rows)


def _unserved(result: Screening, outcome: NDArray[np.int8]) -> str:
    failing = [kind for kind in AnswerOutcome if kind not in _SERVED]
    lost = np.isin(outcome, [kind.value for kind in failing])
    order = np.argsort(-lost.sum(axis=0), kind="stable")
    rows = []
    for k in order[: 2 * SHOWN]:
        hours = np.flatnonzero(lost[:, k])
        if not len(hours):
            break
        kinds = [kind.name for kind in failing if (outcome[hours, k] == kind.value).any()]
        rows.append((result.outages[k], len(hours), ", ".join(kinds), _spans(hours)))
    if not rows:
        return "<p>None: every outage can be served in every hour.</p>"
    total = int(lost.any(axis=0).sum())
    more = f"<p>{total - len(rows)} more outages have such hours.</p>" if total > len(rows) else ""
    return _table(("outage", "hours", "outcome", "when"), rows) + more


def _spans(hours: NDArray[np.int64], most: int = 6) -> str:
    """`3 to 7, 12`: runs of hours, the first few of them."""
    breaks = np.flatnonzero(np.diff(hours) > 1)
    starts, ends = hours[np.append(0, breaks + 1)], hours[np.append(breaks, len(hours) - 1)]
    runs = [f"{a} to {b}" if b > a else f"{a}" for a, b in zip(starts[:most], ends[:most], strict=True)]
    return ", ".join(runs) + (f" and {len(starts) - most} more runs" if len(starts) > most else "")


def _security(cost: Array, served: Mask) -> str:
    """The cost of every hour intact, and with the outage that costs most."""
    known = np.where(served, cost, np.nan)
    intact = known[:, 0]
    with np.errstate(invalid="ignore"):
        others = np.where(np.isfinite(known[:, 1:]), known[:, 1:], -np.inf)
    worst = np.where(
        np.isfinite(others.max(axis=1, initial=-np.inf)), others.max(axis=1, initial=-np.inf), np.nan
    )
    both = np.concatenate([intact, worst])
    if not np.isfinite(both).any():
        return "<p>No hour is served.</p>"
    extra = 100.0 * (worst - intact) / np.abs(intact)
    mean, most = float(np.nanmean(extra)), float(np.nanmax(extra))
    low, high = float(np.nanmin(both)), float(np.nanmax(both))
    lines = "".join(_line(values, low, high, kind) for values, kind in ((worst, "worst"), (intact, "base")))
    label = f"{low:,.4g} to {high:,.4g} an hour"
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="cost by hour, {label}">{lines}'
        f'<text x="4" y="14">{high:,.4g}</text><text x="4" y="{_HEIGHT - 6}">{low:,.4g}</text></svg>'
        f"<figcaption>Cost of every hour with everything in service (grey) and with the served outage that costs most "
        f"(blue): {mean:.3g} % more on average, {most:.3g} % at most.</figcaption></figure>"
    )


def _line(values: Array, low: float, high: float, kind: str) -> str:
    count = min(len(values), _WIDTH)
    edges = np.linspace(0, len(values), count + 1).astype(int)
    tops = [_worst(values[a:b]) for a, b in itertools.pairwise(edges)]
    span = max(high - low, 1e-12)
    points = " ".join(
        f"{x * _WIDTH / max(count - 1, 1):.1f},{_HEIGHT - 20 - (top - low) / span * (_HEIGHT - 40):.1f}"
        for x, top in enumerate(tops)
        if np.isfinite(top)
    )
    return f'<polyline class="{kind}" points="{points}"/>'


def _worst(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else float("nan")


def _voltages(result: Screening, table: Array, *, lowest: bool) -> str:
    filled = np.where(np.isfinite(table), table, np.inf if lowest else -np.inf)
    hour = filled.argmin(axis=0) if lowest else filled.argmax(axis=0)
    value = filled[hour, np.arange(filled.shape[1])]
    order = np.argsort(value if lowest else -value, kind="stable")
    rows = [
        (str(result.buses[k]), f"{value[k]:.4f}", int(hour[k]))
        for k in order[:SHOWN]
        if np.isfinite(value[k])
    ]
    return (
        "<div>"
        + _table(("bus", f"{'lowest' if lowest else 'highest'} voltage, p.u.", "hour"), rows)
        + "</div>"
    )


def _loadings(result: Screening) -> str:
    table = result.branch_loading
    filled = np.where(np.isfinite(table), table, -np.inf)
    hour = filled.argmax(axis=0)
    value = filled[hour, np.arange(filled.shape[1])]
    order = [k for k in np.argsort(-value, kind="stable")[:SHOWN] if value[k] > 0.0]
    rows = [(result.branches[k], f"{100.0 * value[k]:.1f}", int(hour[k])) for k in order]
    return "<div>" + _table(("branch", "highest loading, %", "hour"), rows) + "</div>"


# ---- the map -----------------------------------------------------------------------------------------------


def _heat_map(result: Screening, outcome: NDArray[np.int8], cost: Array, served: Mask) -> str:
    with np.errstate(invalid="ignore", divide="ignore"):
        extra = 100.0 * (cost - cost[:, :1]) / np.abs(cost[:, :1])
    extra = np.where(served & np.isfinite(extra), np.maximum(extra, 0.0), -1.0)
    level = np.where(extra >= 0.0, extra, 0.0)
    top = max(float(np.percentile(level[extra >= 0.0], 99.5)) if (extra >= 0.0).any() else 1.0, 1e-6)
    # One number a cell, the larger the worse, so that cells sharing a pixel show their worst.
    kind = np.where(extra >= 0.0, np.minimum(level / top, 1.0), 2.0)
    kind = np.where(outcome == AnswerOutcome.ISLANDED.value, 1.5, kind)
    kind = np.where(outcome == -1, -1.0, kind)
    shrunk = _shrink(kind.T[1:], _MAP)
    height = int(np.clip(shrunk.shape[0], 120, 900))
    image = base64.b64encode(_png(_colours(shrunk))).decode()
    listed = ", ".join(result.outages[1:4])
    return (
        f'<figure><img alt="hours from left to right, outages from top to bottom" style="height:{height}px" '
        f'src="data:image/png;base64,{image}">'
        f"<figcaption>Hours from left to right, outages from top to bottom in the order of the grid file "
        f"({html.escape(listed)}, ...). From pale to red: what the outage costs more than the intact grid, up to "
        f"{top:.3g} %. Black: cannot be served. Grey: it splits the grid. White: not answered yet.</figcaption>"
        "</figure>"
    )


def _shrink(values: Array, most: tuple[int, int]) -> Array:
    """At most `most` (columns, rows), each the largest of what it stands for."""
    for axis, limit in ((1, most[0]), (0, most[1])):
        size = values.shape[axis]
        if size > limit:
            starts = np.linspace(0, size, limit + 1).astype(int)[:-1]
            values = np.maximum.reduceat(values, starts, axis=axis)
    scale = max(1, min(8, 300 // max(values.shape[0], 1)))
    return np.repeat(values, scale, axis=0)


def _colours(values: Array) -> NDArray[np.uint8]:
    pale, red = np.array([246.0, 240.0, 228.0]), np.array([178.0, 24.0, 43.0])
    share = np.sqrt(np.clip(values, 0.0, 1.0))[..., None]
    colours = pale + share * (red - pale)
    black, grey, white = _UNSERVED
    for test, colour in (
        (values > 1.75, black),
        ((values > 1.25) & (values < 1.75), grey),
        (values < 0.0, white),
    ):
        colours[test] = colour
    return np.asarray(colours, dtype=np.uint8)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """An image file of `(rows, columns, 3)` bytes."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines.tobytes(), 6))
        + chunk(b"IEND", b"")
    )
