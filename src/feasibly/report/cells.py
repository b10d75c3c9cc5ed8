"""The unit of a comparison: train once, answer in every way that applies, keep each row as a file of its own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from feasibly._files import plain, write_whole
from feasibly.answer.ladder import ANSWERS
from feasibly.data.dataset import Dataset
from feasibly.evaluation import evaluate_proxy
from feasibly.fitting import fit
from feasibly.measure.metrics import Metrics, Rows
from feasibly.model.belief import Model
from feasibly.proxy import Proxy
from feasibly.report.files import ReportError, read_json, to_json
from feasibly.report.rows import as_now
from feasibly.train.registry import find

INSTANCES = ("gap_percent", "max_eq", "max_ineq", "max_bound")
"""What is kept of every instance, for plots of how errors spread."""

MEASURES = tuple(name for name in Metrics.__dataclass_fields__ if name not in ("count", "percentiles"))


@dataclass(frozen=True)
class ComparisonPlan:
    """What all cells of a comparison have in common."""

    budget: float
    labels: int
    unlabelled: int | None = None
    trials: int = 1
    tests: int | None = None
    """Unseen instances to answer; all of them when `None`."""
    resample: bool = False
    """Whether each seed also deals the rows anew between training and test, instead of keeping their order."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of methods, by method."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def given_to(self, method: str) -> dict[str, Any]:
        """What a method is given of that which not all can honour; its rows say the same."""
        known = find(method)
        return {
            "unlabelled": self.unlabelled if known.unlabelled else None,
            "trials": self.trials if known.trials else 1,
        }


@dataclass(frozen=True)
class Training:
    """One proxy to train and the ways in which it is to answer."""

    method: str
    seed: int
    answers: tuple[str, ...]

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.method}.{self.seed}"


@dataclass(frozen=True)
class Step:
    """How a comparison stands, for whoever watches."""

    doing: str
    """`training`, `answering` or `done`."""
    method: str
    seed: int
    answer: str
    done: int
    """Trainings that are over, of `total`."""
    total: int
    note: str = ""


class Shelf:
    """Where the cells of a comparison lie: one folder, one file a cell, each written in one go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cell(self, method: str, seed: int, answer: str) -> Path:
        """The file of a row."""
        return self.folder / "cells" / f"{method}.{answer}.{seed}.json"

    def training(self, training: Training) -> Path:
        """The file about a training."""
        return self.folder / "trainings" / f"{training.name}.json"

    def model(self, training: Training) -> Path:
        """The folder of a trained proxy."""
        return self.folder / "models" / training.name

    def row(self, method: str, seed: int, answer: str) -> dict[str, Any] | None:
        """What is in a cell, or `None`."""
        path = self.cell(method, seed, answer)
        if not path.exists():
            return None
        found = read_json(path)
        return found | {"row": as_now(found["row"])}

    def missing(self, training: Training) -> tuple[str, ...]:
        """The answers of a training that have no row yet, those that failed before among them."""
        record = self.training(training)
        left_out = read_json(record)["left_out"] if record.exists() else ()
        return tuple(
            answer
            for answer in training.answers
            if answer not in left_out
            and (
                (found := self.row(training.method, training.seed, answer)) is None
                or "failed" in found["row"]
            )
        )

    def proxy(self, training: Training, data: Dataset) -> Proxy | None:
        """The proxy of an earlier run, if it was kept and can be read."""
        path = self.model(training)
        if not path.exists() or not self.training(training).exists():
            return None
        try:
            return Proxy.load(path, problem=data.problem if data.problem.spec is None else None)
        except Exception:  # whatever is wrong with it, training anew mends it
            return None

    def forget(self, training: Training) -> None:
        """Remove what an earlier training left, so that all rows of a training come from one."""
        for answer in training.answers:
            self.cell(training.method, training.seed, answer).unlink(missing_ok=True)
        self.training(training).unlink(missing_ok=True)
        shutil.rmtree(self.model(training), ignore_errors=True)


def run_training(
    data: Dataset,
    plan: ComparisonPlan,
    training: Training,
    shelf: Shelf,
    *,
    keep_model: bool,
    tell: Callable[[str, str, str], None],
) -> None:
    """Train one proxy and answer in every way that applies; whatever fails becomes a row that says why.

    `tell(doing, answer, note)` is called as it goes on. Ctrl-C while training ends the comparison: a proxy that was
    cut short is no entry of a table.
    """
    rows = deal(data, plan, training.seed)
    missing = shelf.missing(training)
    proxy = shelf.proxy(training, data)
    if proxy is None:
        shelf.forget(training)
        missing = training.answers
        tell("training", "", "")
        try:
            with noticing_interrupt() as pressed:
                proxy = fit(
                    data.problem, rows, training.method, budget=plan.budget, seed=training.seed, labels=plan.labels,
                    **plan.given_to(training.method),
                    progress=lambda moment: noting(pressed, tell, "training", "", moment_line(moment)),
                    **plan.settings.get(training.method, {}),
                )  # fmt: skip
            if pressed.is_set():
                raise KeyboardInterrupt
        except Exception as error:
            for answer in missing:
                fail(shelf, plan, training, answer, reason_of(error))
            return
        missing = tuple(answer for answer in missing if applies(answer, proxy.model))
        _keep(shelf, training, proxy, keep_model)
    for answer in missing:
        tell("answering", answer, "")
        try:
            found = evaluate_proxy(proxy, rows, answer, limit=plan.tests)
            note = {"note": proxy.record.note} if proxy.record.note else {}
            cell = {"row": found.as_dict() | note, "instances": instances_of(found.rows)}
        except Exception as error:
            fail(shelf, plan, training, answer, reason_of(error), proxy)
        else:
            write_whole(shelf.cell(training.method, training.seed, answer), to_json(cell))


def _keep(shelf: Shelf, training: Training, proxy: Proxy, keep_model: bool) -> None:
    record = proxy.record
    left_out = [answer for answer in ANSWERS if not applies(answer, proxy.model)]
    kept = {
        "method": record.method, "asked": record.asked, "left_out": left_out, "seconds": record.seconds,
        "note": record.note, "settings": record.settings,
        "trials": record.trials, "history": record.history, "train_seconds": record.train_seconds,
    }  # fmt: skip
    if keep_model:
        path = shelf.model(training)
        path.parent.mkdir(parents=True, exist_ok=True)
        proxy.save(path, overwrite=True)
    write_whole(shelf.training(training), to_json(kept))


def fail(
    shelf: Shelf,
    plan: ComparisonPlan,
    training: Training,
    answer: str,
    reason: str,
    proxy: Proxy | None = None,
) -> None:
    """Keep a row that says why there is none."""
    record = None if proxy is None else proxy.record
    row: dict[str, Any] = {
        **({"method": training.method} if record is None else record.named),
        "answer": answer,
        "labels": plan.labels if record is None else record.labels,
        **(
            plan.given_to(training.method)
            if record is None
            else {"unlabelled": record.unlabelled, "trials": record.trials}
        ),
        "budget_seconds": plan.budget,
        "train_seconds": None if record is None else record.train_seconds,
        "predict_seconds_per_instance": None,
        "seed": training.seed,
        "count": 0,
        **dict.fromkeys(MEASURES),
        "failed": reason,
    }
    write_whole(shelf.cell(training.method, training.seed, answer), to_json({"row": row, "instances": {}}))


def reason_of(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = " ".join(str(error).split())
    known = isinstance(error, ReportError) or type(error).__module__.startswith("feasibly")
    return text if known and text else f"{type(error).__name__}: {text}".rstrip(": ")


def deal(data: Dataset, plan: ComparisonPlan, seed: int) -> Dataset:
    """The rows in the order in which a seed sees them: as they are, or dealt anew."""
    if not plan.resample or seed == 0:
        return data
    order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(data))
    return data.take(order)


def applies(answer: str, model: Model) -> bool:
    """Whether a model can answer that way: selecting among posterior draws needs a posterior."""
    return answer != "svp" or type(model).draws is not Model.draws


def instances_of(rows: Rows) -> dict[str, Any]:
    """What plots need of every instance, to five digits."""
    found = {}
    for name in INSTANCES:
        values = getattr(rows, name)
        found[name] = [None if not np.isfinite(v) else float(f"{v:.4e}") for v in values.tolist()]
    return plain(found)


def moment_line(moment: Any) -> str:
    """A moment of training in a few words."""
    words = [f"{getattr(moment, 'stage', '')} step {getattr(moment, 'step', '')}".strip()]
    left = getattr(moment, "seconds_left", None)
    if left is not None:
        words.append(f"{max(left, 0.0):.0f} s left")
    return ", ".join(words)


def noting(pressed: threading.Event, tell: Callable[..., None], *words: str) -> None:
    """Tell, and note where whoever listens wants to stop: training would turn that into an early end too."""
    try:
        tell(*words)
    except KeyboardInterrupt:
        pressed.set()
        raise


@contextlib.contextmanager
def noticing_interrupt() -> Iterator[threading.Event]:
    """An event that is set once Ctrl-C was pressed, even where training turned it into an early end."""
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        pressed.set()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
