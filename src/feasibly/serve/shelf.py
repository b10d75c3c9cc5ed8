"""Models that may be served: named at the start, loaded and unloaded while the server runs."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.answer.schedule import CONDITIONED, Level, StartFrom, shared_part
from feasibly.answer.step import BUCKETS, Iterate
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.problem.sampling import sample
from feasibly.proof import prove
from feasibly.proxy import Proxy
from feasibly.serve.asked import How
from feasibly.serve.pieces import split
from feasibly.serve.refusal import Refused

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

log = logging.getLogger("feasibly.serve")

WARM = (16, 64)
"""Rows asked for before a model counts as ready: a size of each kind that answering compiles code for. One row alone
has a program of its own, made once the model is in service; until then it is answered as two."""
FEW = BUCKETS[1]
"""Rows of the narrowest program, but for that of one."""
QUICK_STEPS = 8
"""Steps of a batch of few rows: those that have not converged then, four in a hundred on 118 buses, go on in the next
batch, and nobody waits for them. With fewer steps a row is in more batches, with more of them a batch takes longer."""
QUICK_PASSES = 5
"""Passes over the rows of a long request; those that have not converged are treated alike."""
QUICK_PART = shared_part(CONDITIONED, QUICK_PASSES)
FEW_PART = tuple(
    replace(level, steps=QUICK_STEPS) if level is QUICK_PART[0] else level for level in QUICK_PART
)
GOING_ON = tuple(
    replace(level, start=StartFrom.FOUND) if level is FEW_PART[0] else level for level in FEW_PART
)
PATIENCE = 4.0
"""Usual times of a batch after which it is cut short, whatever the passes: a machine may have been held up."""
SHORTEST_PATIENCE = 0.03
"""Seconds that every batch has: below that, nobody waits long for it."""
FIRST_PATIENCE = 1.0
"""Seconds, where no batch of its size was answered yet."""
REMEMBERED = 20
"""Batches over which the usual time is a mean; one that was cut short counts as what it was given."""
DESCRIPTION = "proxy.json"
"""What makes a folder a model."""


class Served:
    """A model in memory, ready to be asked."""

    def __init__(self, name: str, proxy: Proxy) -> None:
        self.name = name
        self.proxy = proxy
        self._usual: dict[int, float] = {}
        """Seconds that a batch takes, by the binary logarithm of its rows; a running mean."""
        self.digest = proxy.digest()
        self.warm_seconds = float("nan")
        self.alone = False
        """Whether one row is answered by a program of its own."""
        self.position = {name: i for i, name in enumerate(self.problem.input_names)}
        self._making, self._no_prover = threading.Lock(), ""
        self._maker: threading.Thread | None = None
        self.page: dict[str, Any] = {}
        """What the page has worked out about it, once."""

    @property
    def problem(self) -> Problem:
        """What it answers."""
        return self.proxy.problem

    @property
    def grid(self) -> Grid | None:
        """The grid behind it, if there is one."""
        return grid_of(self.problem)

    def predict(self, x: Array, how: How) -> Answer:
        """Answer rows, of one client or many, without a promise: that is about the rows of one (`promise`)."""
        return self._ask(x, how)

    def attempt(self, x: Array, how: How, begin: Iterate | None = None) -> tuple[Answer, Ints]:
        """Answer what can be in about the usual time for so many rows; the others are named.

        `begin` says where rows stood that were among the others before; NaN for the rest.
        """
        if len(x) == 1 and not self.alone:
            twice = None if begin is None else begin.take(np.zeros(2, dtype=np.int64))
            found, left = self.attempt(np.repeat(x, 2, axis=0), how, twice)
            return split(found, (1, 1))[0], left[:1]
        began = time.monotonic()
        size = _size(len(x))
        usual = self._usual.get(size, FIRST_PATIENCE)
        until = began + max(PATIENCE * usual, SHORTEST_PATIENCE)
        schedule = GOING_ON if begin is not None else _part(len(x))
        found = self._ask(x, how, schedule=schedule, until=until, begin=begin)
        took = min(time.monotonic(), until) - began
        self._usual[size] = took if size not in self._usual else usual + (took - usual) / REMEMBERED
        unfinished = [i for i, level in enumerate(found.level) if not level]
        return found, np.array(unfinished, dtype=np.int64)

    def finish(self, x: Array, how: How) -> Answer:
        """Answer rows that `attempt` left: every pass there is, and by a solver of their own where those fail."""
        if len(x) == 1 and not self.alone:
            return split(self.predict(np.repeat(x, 2, axis=0), how), (1, 1))[0]
        return self.predict(x, how)

    def _ask(self, x: Array, how: How, **more: Any) -> Answer:
        rows, _ = self.problem.check_rows(np.asarray(x, dtype=np.float64))
        # `auto` asks the certificate how far up each row has to climb.
        made = self.proxy.certificate
        trust = None if made is None or made.rule is None else made.rule.trusts
        found = self.proxy.ladder.answer(rows, how.answer, tolerance=how.tolerance, trust=trust, **more)
        return prove(self.proxy, found) if how.prove else found

    def check_prover(self) -> None:
        """Have the prover of a grid made on the first request for a proof, beside the answers: it takes minutes.

        Raises:
            Refused: 503 until it is there, 422 when there can be none.
        """
        if self.grid is None or self.proxy._prover is not None:
            return
        with self._making:
            if self._no_prover:
                raise Refused(422, self._no_prover)
            if self._maker is None:
                self._maker = threading.Thread(
                    target=self._make_prover, name=f"proofs of {self.name}", daemon=True
                )
                self._maker.start()
        raise Refused(
            503,
            f"what proofs for {self.name} need is being made, once, and takes about as long as training; ask again in "
            "a minute",
            retry_after=10,
        )

    def _make_prover(self) -> None:
        maker = copy.copy(self.proxy)  # answers go on meanwhile, without it
        try:
            made = maker.prover
        except Exception as error:
            log.warning("no proofs for %s: %s", self.name, error)
            self._no_prover = f"there are no proofs for {self.name}: {error}"
            return
        self.proxy._prover = made

    def promise(self, found: Answer, x: Array, how: How) -> Answer:
        """The same answer with what is promised of it, where the model carries a certificate."""
        made = self.proxy.certificate
        if made is None:
            return found
        defaults = inspect.signature(Proxy.predict).parameters
        return made.attach(
            found, x, how.answer, names=self.problem.input_names, tolerance=how.tolerance,
            seed=defaults["seed"].default, draws=defaults["draws"].default,
        )  # fmt: skip

    def warm(self, sizes: Sequence[int] = WARM) -> None:
        """Compile what answering needs, by answering batches of these sizes; then see how long they take."""
        began = time.perf_counter()
        for rows in sizes:
            if rows == 1:
                self.warm_alone()
            else:
                self._try_out(rows)
        if sizes:  # a batch may leave one row that has not converged, and what it stands at is measured
            nominal = self.problem.nominal[None]
            self.problem.worst(nominal, np.zeros((1, self.problem.n_outputs)))
        self.warm_seconds = time.perf_counter() - began

    def warm_alone(self) -> None:
        """Compile what one row alone needs, and use it from then on."""
        self._try_out(1)
        self.alone = True

    def _try_out(self, rows: int) -> None:
        """Once to compile, once to see how long it takes."""
        x = sample(self.problem, rows)
        schedule = _part(rows)
        self._ask(x, How(), schedule=schedule)
        began = time.monotonic()
        self._ask(x, How(), schedule=schedule)
        self._usual[_size(rows)] = time.monotonic() - began

    @property
    def range(self) -> tuple[Array, Array]:
        """Between which inputs lie: as declared, or a tenth around nominal where nothing is."""
        if self.proxy.box is not None:
            return self.proxy.box
        reach = 0.1 * np.maximum(np.abs(self.problem.nominal), 0.1)
        return self.problem.nominal - reach, self.problem.nominal + reach


def _part(rows: int) -> tuple[Level, ...]:
    """What so many rows are taken through."""
    return FEW_PART if rows <= FEW else QUICK_PART


def _size(rows: int) -> int:
    """The binary logarithm of a number of rows, rounded up."""
    return max(rows - 1, 0).bit_length()


class Shelf:
    """Which names there are, where they come from, and which are loaded.

    `sources` are model folders, and folders of model folders: what stands in one of the latter may be loaded by its
    name at any time. Nothing else can be.
    """

    def __init__(
        self,
        sources: Sequence[Path] = (),
        ready: Mapping[str, Proxy] | None = None,
        *,
        warm: Sequence[int] = WARM,
    ) -> None:
        self._warm = tuple(warm)
        self._folders: dict[str, Path] = {}
        self._roots: list[Path] = []
        self._given = dict(ready or {})
        self.served: dict[str, Served] = {}
        self.troubles: dict[str, str] = {}
        """Why a model could not be loaded."""
        self.loading: set[str] = set()
        for source in sources:
            self._add(source)
        if not self.names():
            raise FeasiblyError("there is no model to serve; name at least one folder that train wrote")

    def _add(self, source: Path) -> None:
        folder = source.resolve()
        if not folder.is_dir():
            raise FeasiblyError(
                f"there is no folder {source}; name a model that train wrote, or a folder of models"
            )
        if (folder / DESCRIPTION).is_file():
            if folder.name in self.names():
                raise FeasiblyError(
                    f"two models are called {folder.name}; a model is known by its folder's name, so rename one"
                )
            self._folders[folder.name] = folder
        elif found := _models_in(folder):
            twice = sorted(set(found) & set(self.names()))
            if twice:
                raise FeasiblyError(
                    f"two models are called {twice[0]}; a model is known by its folder's name, so rename one"
                )
            self._roots.append(folder)
        else:
            raise FeasiblyError(f"{source} is no model and holds none; name a folder that train wrote")

    @property
    def warms(self) -> bool:
        """Whether models are warmed up before they answer."""
        return bool(self._warm)

    def names(self) -> list[str]:
        """Every model that is loaded or could be, in the order they were named."""
        found = {**self._folders, **dict.fromkeys(self._given)}
        for root in self._roots:
            found |= {name: path for name, path in _models_in(root).items() if name not in found}
        return list(found)

    def open(self, name: str) -> Served:
        """Read and warm a model; slow, and without effect on what is served. `put` takes it into service.

        Raises:
            FeasiblyError: there is no such model, or it cannot be read.
        """
        proxy = self._given.get(name)
        if proxy is None:
            folder = self._folders.get(name) or self._in_roots(name)
            proxy = Proxy.load(folder)
        served = Served(name, proxy)
        served.warm(self._warm)
        return served

    def _in_roots(self, name: str) -> Path:
        for root in self._roots:
            # Looked up among what is there: a name never becomes part of a path.
            found = _models_in(root).get(name)
            if found is not None:
                return found
        raise FeasiblyError(f"there is no model {name!r} among the folders named at the start")

    def put(self, served: Served) -> None:
        """Answer with this one from now on."""
        self.served[served.name] = served
        self.troubles.pop(served.name, None)

    def remove(self, name: str) -> bool:
        """Answer no more; whether it was loaded. Requests that hold it keep it until they are done."""
        return self.served.pop(name, None) is not None

    def state(self, name: str) -> str:
        """In the words of the protocol's model repository."""
        if name in self.served:
            return "READY"
        return "LOADING" if name in self.loading else "UNAVAILABLE"


def _models_in(folder: Path) -> dict[str, Path]:
    """Model folders right inside a folder, by name; links and hidden ones are passed over."""
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return {}
    return {
        path.name: path
        for path in inside
        if not path.name.startswith(".") and not path.is_symlink() and (path / DESCRIPTION).is_file()
    }
