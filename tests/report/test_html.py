"""The report: one file, nothing fetched, everything that was asked for in it."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import feasibly as fb
from feasibly.report.compare import Comparison
from feasibly.report.files import ReportError
from feasibly.report.html import write_report
from feasibly.report.reproduce import Reproduction
from tests.report.test_render import row


class Page(HTMLParser):
    """Collects what a browser would load, and checks that tags close."""

    VOID = frozenset({"meta", "img", "link", "br", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.alts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("script", "link", "iframe"):
            raise AssertionError(tag)
        if found.get("src"):
            self.sources.append(str(found["src"]))
            self.alts.append(str(found.get("alt") or ""))
        if found.get("href"):
            assert str(found["href"]).startswith("#")
        if found.get("id"):
            self.ids.append(str(found["id"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(reproduced: Reproduction, tmp_path_factory: pytest.TempPathFactory) -> Page:
    comparison = reproduced.parts[0].comparison
    assert comparison.store is not None
    data = fb.Dataset.open(comparison.store / "rows.zarr")
    proxy = comparison.proxy("ridge", 0, data)
    assert proxy is not None
    promised = fb.certify(proxy, data, 0.6, answers=("mean",), unlabelled=50, draws=5)
    path = tmp_path_factory.mktemp("report") / "report.html"
    made = write_report(
        path, data, comparison=comparison, main="mean",
        command="feasibly compare grid.zarr --labels 40", seconds={"labels": 1.5},
        certificate=promised, notes=["<script>alert(1)</script> & more"],
    )  # fmt: skip
    assert made == path
    return Page(path.read_text(encoding="utf-8"))


def test_nothing_is_fetched(page: Page) -> None:
    assert page.open == []
    assert page.sources
    for source in page.sources:
        kind, _, content = source.partition(";base64,")
        assert kind in ("data:image/svg+xml", "data:image/png")
        if "svg" in kind:
            assert ElementTree.fromstring(base64.b64decode(content)).tag.endswith("svg")
    assert all(page.alts)


def test_every_part_is_there(page: Page) -> None:
    assert page.ids == [
        "asked",
        "time",
        "answers",
        "spread",
        "outputs",
        "grid",
        "bounds",
        "learning",
        "promise",
        "words",
        "made",
    ]
    for words in (
        "feasibly compare grid.zarr --labels 40", "3 buses", "jax", "ridge", "conditioned", "Answers by 'mean'",
        "No bound on the mean of va", "a line out of service cannot be seen",
        "unseen until then", "Max Ineq.", "40, validation included",
    ):  # fmt: skip
        assert words in page.text, words


def test_what_users_write_is_shown_and_not_run(page: Page) -> None:
    assert "<script>alert(1)</script> & more" in page.text


def test_a_problem_of_ones_own_has_no_grid_but_a_report(
    toy_data: fb.Dataset, toy_comparison: Comparison, tmp_path: Path
) -> None:
    proxy = toy_comparison.proxy("ridge", 0, toy_data)
    assert proxy is not None
    found = [fb.evaluate_proxy(proxy, toy_data, answer, repeat=False) for answer in ("mean", "svp")]
    page = Page(write_report(tmp_path / "r.html", toy_data, found).read_text(encoding="utf-8"))
    assert "grid" not in page.ids
    assert {"outputs", "bounds", "answers"} <= set(page.ids)
    assert "no certificate was made" in page.text


def test_rows_without_proxies_and_failures_are_reported(toy_data: fb.Dataset, tmp_path: Path) -> None:
    history = [
        {"seconds": 0.5 * k, "max_eq": 1.0 / k, "gap_percent": 2.0 / k, "stage": "sup"} for k in (1, 2, 3)
    ]
    rows: tuple[Any, ...] = (
        row("mae", "mean", 0.5),
        row("mse", "mean", 1.0) | {"failed": "it ran out of <memory>", "gap_percent": None},
    )
    trainings = {
        "mae.0": {"seconds": {"compile": 1.0, "sup": 2.0}, "history": history, "note": "stopped early"}
    }
    comparison = Comparison(
        "toy", rows, {}, ({"gap_percent": [1.0], "max_eq": [1.0], "max_ineq": [0.0]}, {}), trainings
    )
    page = Page(
        write_report(tmp_path / "r.html", toy_data, comparison=comparison).read_text(encoding="utf-8")
    )
    assert "failed: it ran out of <memory>" in page.text
    assert "† mae: stopped early" in page.text
    assert "learning" in page.ids
    assert "outputs" not in page.ids


def test_nothing_to_report_is_said(toy_data: fb.Dataset, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="needs evaluations or a comparison"):
        write_report(tmp_path / "r.html", toy_data)
    assert not list(tmp_path.iterdir())
