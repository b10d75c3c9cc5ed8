"""The loop around every gradient method: it owns time, progress and the best so far.

A method is a `Learner`: pure functions for a step, a list of stages that share the budget, and a judgement of its
states. Steps run in chunks inside one compiled loop whose length is an argument, so nothing is compiled again
however long a chunk is, and a recorded run can be replayed chunk by chunk.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.model.belief import Model
from feasibly.train.clock import Clock, Pace
from feasibly.train.closed import fall_back
from feasibly.train.task import Moment, Task, Trained
from feasibly.train.training import Request

CHUNK_SHARE = 0.01
"""A chunk of steps takes about this share of the budget."""

LONGEST_CHUNK = 60.0
"""Seconds: whoever has days to spare still wants to see something, and to stop."""

HASTE = 1.0
"""Seconds of budget below which nothing is compiled, not even to find out how long compiling takes."""

COMPILE_COST = 50.0
"""How long a method takes to compile, in units of `probe`. On case57: `mae` 19, `lagrangian-dual` 27,
`supervised-bnn` 37, `sandwich-dnn` 46, `sandwich-bnn` 72; about half of that on a toy problem."""


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one objective."""

    program: str
    round: int
    share: float
    """Of the training time, relative to the other stages."""


@dataclass(frozen=True)
class Validation:
    """A judgement of a state; smaller scores are better."""

    score: float
    """Compares states of all stages and trials."""
    stage_score: float
    """Compares states of one stage, by its own objective."""
    metrics: Mapping[str, float]


class Learner(abc.ABC):
    """A gradient method, ready for one task."""

    name: str
    stages: tuple[Stage, ...]
    keeps_best: bool = True
    """Whether the best state by `score` is returned, rather than the last one."""
    passes_best: bool = False
    """Whether a stage hands on its best state by `stage_score`, rather than its last one."""
    patience: Mapping[str, int] = {}
    """After how many validations without improvement of `stage_score` a stage of a program ends early."""

    @abc.abstractmethod
    def init(self, seed: int) -> Any:
        """The state before training: a pytree of arrays."""

    @abc.abstractmethod
    def begin(self, state: Any, stage: Stage, seed: int) -> Any:
        """The carry with which a stage begins; of the same shapes for all stages of one program."""

    @abc.abstractmethod
    def advance(self, program: str) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """A function of carry, number of steps and `data`, which gives the carry after them and the mean loss."""

    @abc.abstractmethod
    def data(self, program: str) -> Any:
        """The arrays that the steps of a program read."""

    @abc.abstractmethod
    def state(self, carry: Any) -> Any:
        """The state within a carry."""

    @abc.abstractmethod
    def validate(self, carry: Any, stage: Stage, seed: int) -> Validation:
        """Judge the state within a carry on the validation rows."""

    @abc.abstractmethod
    def finish(self, state: Any, seed: int) -> Model:
        """The model of a state. It must not compile anything new: the budget is spent."""


@dataclass
class _Best:
    state: Any = None
    score: float = float("inf")

    def offer(self, state: Any, score: float) -> bool:
        if self.state is not None and not score < self.score:
            return False
        # A copy: the next chunk of steps reuses the memory of its arguments.
        self.state, self.score = jax.tree.map(jnp.copy, state), score
        return True


@dataclass
class _Run:
    learner: Learner
    request: Request
    best: _Best = field(default_factory=_Best)
    last: _Best = field(default_factory=_Best)
    """The best of the states with which trials ended."""
    history: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    programs: dict[str, Any] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    validation_seconds: float = 0.0

    @property
    def task(self) -> Task:
        """What is learnt."""
        return self.request.task

    @property
    def clock(self) -> Clock:
        """The budget."""
        return self.request.clock

    def compile(self) -> None:
        """Everything that will run, so that no stage waits for the compiler."""
        learner = self.learner
        with self.clock.account("compile"):
            state = learner.init(self.task.seed)
            carries = {}
            for stage in learner.stages:
                if stage.program not in self.programs:
                    carry = carries[stage.program] = learner.begin(state, stage, self.task.seed)
                    program = jax.jit(learner.advance(stage.program), donate_argnums=0)
                    data = learner.data(stage.program)
                    self.programs[stage.program] = program.lower(carry, np.int32(1), data).compile()
            for stage in {stage.program: stage for stage in learner.stages}.values():
                for _ in range(2):  # the first call compiles, the second tells the time
                    begun = self.clock.elapsed
                    learner.validate(carries[stage.program], stage, self.task.seed)
                    seconds = self.clock.elapsed - begun
                self.validation_seconds = max(self.validation_seconds, seconds)
        # Rarer validation where it is dear: it should take a few percent of the time at most.
        wanted = max(min(CHUNK_SHARE * self.clock.budget, LONGEST_CHUNK), 30.0 * self.validation_seconds)
        self.paces = {name: Pace(min(wanted, 0.05 * self.clock.budget)) for name in self.programs}

    def trial(self, index: int, end: float, replay: list[Mapping[str, Any]] | None) -> None:
        """Train once, until the clock shows `end` or along the recorded steps."""
        learner = self.learner
        seed = _mixed(self.task.seed, index)
        state = learner.init(seed)
        last: tuple[Any, float] | None = None
        for place, stage in enumerate(learner.stages):
            remaining = sum(later.share for later in learner.stages[place:])
            now = self.clock.elapsed
            stage_end = now + (end - now) * stage.share / remaining
            timed = self._timed_chunks(stage, stage_end)
            chunks = timed if replay is None else _recorded_chunks(replay, index, place)
            state, last = self._stage(index, place, stage, state, seed, chunks) or (state, last)
        if last is not None and not learner.keeps_best:
            self.last.offer(*last)

    def _stage(
        self, trial: int, place: int, stage: Stage, state: Any, seed: int, chunks: Iterator[int]
    ) -> tuple[Any, tuple[Any, float]] | None:
        learner, clock = self.learner, self.clock
        taken: list[int] = []
        self.steps.append(
            {"trial": trial, "place": place, "round": stage.round, "stage": stage.program, "chunks": taken}
        )
        carry = learner.begin(state, stage, _mixed(seed, place))
        data = learner.data(stage.program)
        pace = self.paces[stage.program]
        stage_best, waited, judged = _Best(), 0, None
        for count in chunks:
            begun = clock.elapsed
            with clock.account(stage.program):
                carry, loss = self.programs[stage.program](carry, np.int32(count), data)
                loss = float(loss)
            pace.learn(count, clock.elapsed - begun)
            taken.append(count)
            with clock.account("validation"):
                state = learner.state(carry)
                judged = learner.validate(carry, stage, seed)
                if self.best.offer(state, judged.score):
                    self.request.offer(self._best_model, self.request.name)
                improved = judged.stage_score < stage_best.score
                if learner.passes_best:
                    stage_best.offer(state, judged.stage_score)
                else:
                    stage_best.score = min(stage_best.score, judged.stage_score)
            waited = 0 if improved else waited + 1
            self._report(trial, stage, sum(taken), loss, judged)
            if 0 < learner.patience.get(stage.program, 0) <= waited:
                break
        if judged is None:
            return None
        score = judged.score
        state = learner.state(carry)
        if learner.passes_best and stage_best.state is not None:
            state = stage_best.state
        return state, (state, score)

    def _best_model(self) -> Model:
        return self.learner.finish(self.best.state, self.task.seed)

    def _timed_chunks(self, stage: Stage, end: float) -> Iterator[int]:
        pace = self.paces[stage.program]
        while True:
            count = pace.steps(end - self.clock.elapsed - 1.2 * self.validation_seconds)
            if count < 1:
                return
            yield count

    def _report(self, trial: int, stage: Stage, step: int, loss: float, judged: Validation) -> None:
        entry = {
            "seconds": round(self.clock.elapsed, 4), "trial": trial, "round": stage.round, "stage": stage.program,
            "step": step, "loss": loss, "score": judged.score, **judged.metrics,
        }  # fmt: skip
        self.history.append(entry)
        if self.request.progress is not None:
            seconds = self.clock.elapsed
            moment = Moment(
                self.learner.name,
                trial,
                stage.round,
                stage.program,
                step,
                loss,
                judged.metrics,
                seconds,
                self.clock.left,
            )
            self.request.progress(moment)


def drive(request: Request, make: Callable[[], Learner], *, compile_cost: float = COMPILE_COST) -> Trained:
    """Train by gradient steps until the budget is spent, and return the best model found.

    Args:
        request: labels and inputs, the clock, already running, and what to do.
        make: builds the learner; its time counts.
        compile_cost: seconds of compilation to expect, in units of `probe`.

    A budget too small to compile, or to take one step, gets the ridge model.
    """
    clock, name, replay = request.clock, request.name, request.replay
    enough = replay is not None or clock.left > HASTE
    expected = 0.0 if replay is not None else compile_cost * probe() if enough else np.inf
    if expected > 0.7 * clock.left:
        about = f" (about {expected:.0f} s here)" if enough else ""
        return fall_back(request, f"The budget of {clock.budget:g} s is too small to compile {name}{about}")
    run: _Run | None = None
    learner: Learner | None = None
    note = ""
    try:
        request.tell("compiling")
        with clock.account("compile"):
            learner = make()
        run = _Run(learner, request)
        run.compile()
        reserve = 2.0 * run.validation_seconds + min(0.002 * clock.budget, 1.0)
        for index in range(request.trials):
            now = clock.elapsed
            end = now + (clock.budget - reserve - now) / (request.trials - index)
            recorded = None if replay is None else list(replay)
            run.trial(index, end, recorded)
    except KeyboardInterrupt:
        note = "Training was interrupted; this is the best model until then."
    chosen = _Best()
    if run is not None:
        chosen = run.last if run.last.state is not None and not note else run.best
    if learner is None or chosen.state is None or not np.isfinite(chosen.score):
        if note:
            return fall_back(request, "Training was interrupted before anything was learnt", interrupted=True)
        return fall_back(
            request,
            f"Not one step of {name} fitted into the budget of {clock.budget:g} s before anything was learnt",
        )
    with clock.account("validation"):
        model = learner.finish(chosen.state, request.task.seed)
    assert run is not None
    return Trained(
        model=model,
        method=name,
        settings={} if request.settings is None else dataclasses.asdict(request.settings),
        history=run.history,
        steps=run.steps,
        seconds=clock.accounts(),
        note=note,
        labels=request.task.labels,
    )


def _recorded_chunks(replay: list[Mapping[str, Any]], trial: int, place: int) -> Iterator[int]:
    for entry in replay:
        if entry["trial"] == trial and entry["place"] == place:
            yield from (int(count) for count in entry["chunks"])


def _mixed(seed: int, index: int) -> int:
    """Another seed for every index, the same on every machine."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1, dtype=np.uint32)[0])


@functools.cache
def probe() -> float:
    """Seconds this machine takes, as loaded as it is, to compile something small."""

    def small(weights: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(jnp.tanh(x @ weights) @ weights) ** 2)

    example = jax.ShapeDtypeStruct((8, 8), np.float32)
    jax.jit(lambda x: x + 1.0).lower(example).compile()  # wakes JAX up, which takes longer than compiling
    begun = time.perf_counter()
    jax.jit(jax.value_and_grad(small)).lower(example, example).compile()
    return time.perf_counter() - begun
