"""All methods and all answers from one run, in random order, resumable cell by cell."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from feasibly._files import plain, write_whole
from feasibly.answer.ladder import ANSWERS
from feasibly.data.dataset import Dataset
from feasibly.problem.errors import FeasiblyError
from feasibly.proxy import Proxy
from feasibly.report._apart import Watch, run_apart
from feasibly.report.cells import ComparisonPlan, Shelf, Step, Training, run_training
from feasibly.report.files import ReportError, read_json, to_json
from feasibly.report.machine import cores_available, describe_machine
from feasibly.report.rows import asked_of, key_of, stands_in
from feasibly.train.registry import GROUP, METHODS, find, is_everywhere
from feasibly.train.training import check_request


@dataclass(frozen=True)
class Comparison:
    """Rows of a table and what lies behind them.

    Attributes:
        problem: its name.
        rows: one object a row, as `feasibly compare --json` prints them, in the order of tables. A row of a method
            that failed has a key `failed` that says why; where there was no time for a method, `method` is what
            answered and `asked` what it stands in for.
        info: machine, cores, versions, commit, plan, the order in which trainings ran, the solver's own time.
        instances: for each row, `gap_percent`, `max_eq`, `max_ineq` and `max_bound` of every instance.
        trainings: by method and seed, where the time went and how training proceeded.
        store: the folder with the cells and the trained proxies, where one was given.
    """

    problem: str
    rows: tuple[Mapping[str, Any], ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    instances: tuple[Mapping[str, Any], ...] = ()
    trainings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store: Path | None = None

    def document(self, **more: Any) -> dict[str, Any]:
        """For `benchmarks/results`: the rows, and everything needed to judge them."""
        return plain(
            {"benchmark": "compare", **describe_machine(self.info.get("cores_used")), **self.info, **more}
            | {"problem": self.problem, "rows": self.rows}
            | {"seconds": {name: record.get("seconds", {}) for name, record in self.trainings.items()}}
        )

    def proxy(self, method: str, seed: int, data: Dataset) -> Proxy | None:
        """The proxy that was trained when `method` was asked for, where it was kept."""
        return None if self.store is None else Shelf(self.store).proxy(Training(method, seed, ()), data)

    def pick(self, method: str, answer: str) -> list[Mapping[str, Any]]:
        """The rows of one method and answer, one a seed; what stands in for a method is not among its rows."""
        return [row for row in self.rows if key_of(row) == (method, method, answer)]


def compare(
    data: Dataset,
    methods: Iterable[str] | None = None,
    answers: Iterable[str] | None = None,
    *,
    budget: float = 600.0,
    labels: int = 512,
    seeds: int | Sequence[int] = 1,
    unlabelled: int | None = None,
    trials: int = 1,
    tests: int | None = None,
    resample: bool = False,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    order: int = 0,
    jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    keep_models: bool = True,
    progress: Watch | None = None,
) -> Comparison:
    """Train every method on the same labels, answer the same unseen rows in every way, and measure.

    Trainings run in random order, so that a slow moment of the machine falls on nobody in particular. With `store`,
    every finished cell is a file there: the same call after an interruption does what is missing (and tries again
    what failed); more methods, answers or seeds may be asked for later. Ways of answering that do not apply to a
    method are left out.

    Args:
        data: labelled rows, more than `labels` of them.
        methods: names from `METHODS`; all unless told.
        answers: names from `ANSWERS`; all unless told.
        budget: wall-clock seconds a training, compilation and trials included.
        labels: how many labels a method sees, validation included.
        seeds: how many (0, 1, ...), or which.
        unlabelled, trials: as in `fit`, for the methods that honour them; rows say what each was given.
        tests: how many unseen rows to answer; all unless told.
        resample: also deal the rows anew for each seed but 0, so that the range over seeds counts the choice of labels.
        settings: settings of methods, by method, as in `fit`.
        order: seed of the order of trainings.
        jobs: run each training in a process of its own with one core, so many at a time; in this process when not
            given. Needs a built-in problem, and methods that other processes know.
        store: folder for finished cells and trained proxies.
        keep_models: whether trained proxies are kept there.
        progress: called with a `Step` now and then.

    Raises:
        ReportError: names that do not exist, too few labels, a store of another comparison, settings that a method
            does not have, or what none of the methods honours (with `store`, others may be asked for later).

    Examples:
        With the labels of `fit`'s example:

        >>> found = fb.compare(data, ["ridge", "gp"], ["mean"], labels=40, budget=10)
        >>> [(row["method"], row["answer"], row["count"]) for row in found.rows]
        [('ridge', 'mean', 60), ('gp', 'mean', 60)]
    """
    chosen = _names("method", methods, METHODS)
    ways = _names("answer", answers, ANSWERS)
    picked = tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)
    if not picked or min(picked) < 0 or len(set(picked)) < len(picked):
        raise ReportError("seeds must be a positive number of them, or different numbers from 0")
    plan = ComparisonPlan(
        float(budget), int(labels), unlabelled, int(trials), tests, resample, dict(settings or {})
    )
    _check_plan(plan, data, jobs)
    _check_methods(plan, chosen, jobs, alone=store is None)
    with tempfile.TemporaryDirectory(prefix="feasibly-") as temporary:
        folder = Path(temporary) if store is None else Path(store)
        shelf = Shelf(folder)
        info = _open(shelf, plan, data)
        trainings = [Training(method, seed, ways) for method in chosen for seed in picked]
        random = np.random.Generator(np.random.Philox(key=order))
        queued = [trainings[i] for i in random.permutation(len(trainings))]
        queued = [training for training in queued if shelf.missing(training)]
        keep = keep_models and store is not None
        if jobs is None:
            _run_here(data, plan, queued, shelf, keep, progress)
        else:
            run_apart(data, plan, queued, shelf, keep, progress, jobs)
        info |= {
            "cores_used": cores_available() if jobs is None else 1,
            "at_a_time": jobs or 1,
            "order": [training.name for training in queued],
        }
        found = _gather(data.problem.name, shelf, trainings, info)
        return found if store is not None else replace(found, store=None)


def _names(kind: str, given: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    if given is None:
        return tuple(known)
    asked = tuple(given)
    wrong = [name for name in asked if name not in known]
    if wrong or not asked:
        what = f"there is no {kind} {wrong[0]!r}" if wrong else f"name at least one {kind}"
        raise ReportError(f"{what}; choose from {', '.join(known)}")
    return tuple(name for name in known if name in asked)


def _check_plan(plan: ComparisonPlan, data: Dataset, jobs: int | None) -> None:
    if not plan.budget > 0.0:
        raise ReportError(f"the budget must be a positive number of seconds, not {plan.budget}")
    if data.n_labels <= plan.labels:
        raise ReportError(
            f"{data.n_labels} labels are not enough to train on {plan.labels} and to test on others; label more rows, "
            "or ask for fewer labels"
        )
    if jobs is not None and jobs < 1:
        raise ReportError(f"jobs must be at least 1, not {jobs}")
    if jobs is not None and data.problem.spec is None:
        raise ReportError(
            "a problem of your own cannot be handed to other processes; leave jobs out, and trainings run one after "
            "the other in this one"
        )


def _check_methods(plan: ComparisonPlan, chosen: Sequence[str], jobs: int | None, *, alone: bool) -> None:
    """Refuse what no method can honour; `alone` says that no other methods will be asked for with the same plan."""
    for name, changes in plan.settings.items():
        try:
            check_request(find(name), dict(changes), 1, None)
        except FeasiblyError as error:
            raise ReportError(str(error)) from None
        if alone and name not in chosen:
            raise ReportError(f"there are settings for {name}, which is not compared; leave them out")
    if not 0.0 < plan.budget < math.inf:
        raise ReportError(f"the budget must be a positive number of seconds and finite, not {plan.budget}")
    if plan.trials < 1:
        raise ReportError(f"at least one trial is needed, not {plan.trials}")
    names = ", ".join(chosen)
    if alone and plan.trials > 1 and not any(find(name).trials for name in chosen):
        raise ReportError(
            f"none of {names} can be tried several times; leave trials out, or choose a network"
        )
    if alone and plan.unlabelled and not any(find(name).unlabelled for name in chosen):
        raise ReportError(f"none of {names} learns from inputs without labels; leave unlabelled out")
    here = [name for name in chosen if not is_everywhere(name)]
    if jobs is not None and here:
        raise ReportError(
            f"the method {here[0]!r} is registered in this process alone, and jobs start others; leave jobs out, or "
            f"let a package offer it as an entry point of the group {GROUP}"
        )


def _open(shelf: Shelf, plan: ComparisonPlan, data: Dataset) -> dict[str, Any]:
    """The head of a comparison: written once, and checked when cells are added."""
    digest = hashlib.sha256(np.ascontiguousarray(data.keys[data.solved]).tobytes()).hexdigest()[:32]
    tested = data.seconds[data.solved][plan.labels :]
    seconds = float(tested.mean()) if len(tested) and tested.sum() > 0 else None
    head = plain(
        {
            "problem": data.problem.name, "fingerprint": data.problem.fingerprint, "data": digest,
            "plan": plan.as_dict(), "solver_seconds_per_instance": seconds,
        }
    )  # fmt: skip
    path = shelf.folder / "comparison.json"
    if path.exists():
        before = read_json(path)
        for key in ("fingerprint", "data", "plan"):
            if before.get(key) != head[key]:
                what = {"fingerprint": "another problem", "data": "other labels"}.get(key) or _difference(
                    before.get(key, {}), head[key]
                )
                raise ReportError(
                    f"{shelf.folder} holds a comparison with {what}; choose another folder, or remove that one"
                )
    else:
        write_whole(path, to_json(head))
    return dict(head)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changed = [key for key in now if before.get(key) != now[key]]
    return "other settings (" + ", ".join(f"{key} {before.get(key)}, not {now[key]}" for key in changed) + ")"


def _run_here(
    data: Dataset,
    plan: ComparisonPlan,
    queued: list[Training],
    shelf: Shelf,
    keep: bool,
    progress: Watch | None,
) -> None:
    for done, training in enumerate(queued):

        def tell(doing: str, answer: str, note: str, now: Training = training, done: int = done) -> None:
            if progress is not None:
                progress(Step(doing, now.method, now.seed, answer, done, len(queued), note))

        run_training(data, plan, training, shelf, keep_model=keep, tell=tell)
        if progress is not None:
            progress(Step("done", training.method, training.seed, "", done + 1, len(queued)))


# ---- gathering -------------------------------------------------------------------------------------------


def _gather(problem: str, shelf: Shelf, trainings: list[Training], info: Mapping[str, Any]) -> Comparison:
    found = []
    records = {}
    for training in trainings:
        if shelf.training(training).exists():
            records[training.name] = read_json(shelf.training(training))
        for answer in training.answers:
            cell = shelf.row(training.method, training.seed, answer)
            if cell is not None:
                found.append(cell)
    found.sort(key=lambda cell: rank_of(cell["row"]))
    rows = tuple(cell["row"] for cell in found)
    return Comparison(problem, rows, info, tuple(cell["instances"] for cell in found), records, shelf.folder)


def rank_of(row: Mapping[str, Any]) -> tuple[int, bool, int, int]:
    """Where a row stands in a table: by the method asked for, what stands in for it last, by answer, by seed."""
    return _place(asked_of(row), METHODS), stands_in(row), _place(row["answer"], ANSWERS), row["seed"]


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)
