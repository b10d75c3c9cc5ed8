"""Time, progress, the best so far and replay, on a learner that is cheap and a clock that is not real."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.model.belief import Belief, Covariance, Model
from feasibly.problem.errors import FeasiblyError
from feasibly.train import driver
from feasibly.train.clock import Clock, Pace
from feasibly.train.driver import Learner, Stage, Validation, drive
from feasibly.train.task import Task, Trained
from feasibly.train.training import Request
from tests.problems import CASES, make


class Fixed(Model):
    kind = "fixed"  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self.value = value
        self.covariance = Covariance(np.zeros((2, 0)), np.zeros(2))

    def predict(self, x):
        return Belief(np.full((len(x), 2), self.value), np.zeros((len(x), 2)))


class FakeTime:
    """Seconds that pass only when something is said to take them."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Walker(Learner):
    """One number that a random walk moves; its score is its distance from 3."""

    name = "walker"

    def __init__(self, time: FakeTime | None = None, step_seconds: float = 0.01, **changes: Any) -> None:
        self.stages = (Stage("sup", 1, 0.4), Stage("unsup", 1, 0.6), Stage("sup", 2, 0.4))
        self.time = time
        self.step_seconds = {"sup": step_seconds, "unsup": 3.0 * step_seconds}
        self.began: list[tuple[str, int, float]] = []
        for name, value in changes.items():
            setattr(self, name, value)

    def init(self, seed: int) -> Any:
        return jnp.float32(seed % 7)

    def begin(self, state: Any, stage: Stage, seed: int) -> Any:
        self.began.append((stage.program, stage.round, float(state)))
        return jnp.copy(state), jnp.int32(0), jax.random.key(seed)

    def advance(self, program: str) -> Callable[..., Any]:
        def run(carry, steps, data):
            def body(_, carry):
                value, step, key = carry
                return value + data * jax.random.normal(jax.random.fold_in(key, step)), step + 1, key

            carry = jax.lax.fori_loop(0, steps, body, carry)
            return carry, carry[0]

        return run

    def data(self, program: str) -> Any:
        return np.float32(0.1)

    def state(self, carry: Any) -> Any:
        return carry[0]

    def validate(self, carry: Any, stage: Stage, seed: int) -> Validation:
        if self.time is not None:
            self.time.seconds += 0.005
        score = abs(float(carry[0]) - 3.0)
        return Validation(score, score, {"distance": score})

    def finish(self, state: Any, seed: int) -> Fixed:
        return Fixed(float(state))


def _task(seed: int = 0) -> Task:
    problem = make("toy")
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (12, 2))
    return Task.split(problem, x, CASES["toy"].optimum(x), unlabelled=8, seed=seed)


class _TakesTime:
    """A compiled program that moves the fake clock."""

    def __init__(self, program: Any, time: FakeTime, seconds: float) -> None:
        self.program, self.time, self.seconds = program, time, seconds

    def __call__(self, carry: Any, steps: Any, data: Any) -> Any:
        self.time.seconds += float(steps) * self.seconds
        return self.program(carry, steps, data)


def _drive(
    budget: float = 10.0, time: FakeTime | None = None, learner: Walker | None = None, **options: Any
) -> tuple[Trained, Clock]:
    time = time or FakeTime()
    learner = learner or Walker(time)
    original = driver._Run.compile

    def compile_with_time(self: Any) -> None:
        original(self)
        time.seconds += 0.5
        self.programs = {
            name: _TakesTime(program, time, learner.step_seconds[name])
            for name, program in self.programs.items()
        }

    clock = Clock(budget, time)
    cost, make = options.pop("compile_cost", 0.0), options.pop("make", lambda: learner)
    request = Request(_task(), "walker", None, clock, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver._Run, "compile", compile_with_time)
        done = drive(request, make, compile_cost=cost)
    return done, clock


@pytest.mark.parametrize(
    ("budget", "step_seconds", "trials"),
    [
        (2.0, 1e-4, 1),
        (2.0, 0.02, 3),
        (2.0, 0.15, 1),
        (5.0, 0.02, 1),
        (17.0, 0.15, 3),
        (60.0, 1e-3, 3),
        (60.0, 0.15, 1),
    ],
)
def test_budget_is_kept(budget, step_seconds, trials):
    time = FakeTime()
    _, clock = _drive(budget, time, Walker(time, step_seconds), trials=trials)
    longest = 3.0 * step_seconds
    assert clock.elapsed <= budget + max(0.02 * budget, longest)
    # The first step of a program tells its speed, so a budget of a few steps may be left half used.
    assert clock.elapsed >= 0.9 * budget - trials * 3 * 4.0 * longest


def test_shares_of_the_budget_are_kept():
    done, _ = _drive(60.0)
    assert done.seconds["sup"] == pytest.approx(0.8 / 1.4 * 59.0, rel=0.06)
    assert done.seconds["unsup"] == pytest.approx(0.6 / 1.4 * 59.0, rel=0.06)
    assert done.seconds["total"] == pytest.approx(
        sum(v for k, v in done.seconds.items() if k != "total"), rel=1e-6
    )
    assert [entry["stage"] for entry in done.steps] == ["sup", "unsup", "sup"]


def test_best_so_far_is_returned_and_it_is_in_the_history():
    done, _ = _drive(20.0)
    best = min(entry["score"] for entry in done.history)
    assert abs(done.model.value - 3.0) == pytest.approx(best, abs=1e-6)
    assert all(entry["seconds"] <= 20.5 for entry in done.history)


def test_last_state_is_returned_when_asked_for():
    time = FakeTime()
    done, _ = _drive(20.0, time, Walker(time, keeps_best=False))
    assert abs(done.model.value - 3.0) == pytest.approx(done.history[-1]["score"], abs=1e-6)
    assert done.history[-1]["score"] > min(entry["score"] for entry in done.history)


def test_a_stage_can_hand_on_its_best():
    time = FakeTime()
    learner = Walker(time, passes_best=True)
    done, _ = _drive(20.0, time, learner)
    first = [entry["score"] for entry in done.history if entry["stage"] == "sup" and entry["round"] == 1]
    began_unsup = learner.began[-2]  # the first entries come from compiling
    assert began_unsup[0] == "unsup"
    assert abs(began_unsup[2] - 3.0) == pytest.approx(min(first), abs=1e-6)


def test_patience_ends_a_stage_and_gives_its_time_away():
    time = FakeTime()
    done, clock = _drive(30.0, time, Walker(time, patience={"sup": 2}))
    stages = {entry["stage"]: entry for entry in done.steps}
    assert done.seconds["unsup"] > done.seconds["sup"]
    assert stages["sup"]["chunks"]
    assert clock.elapsed <= 30.6


def test_replay_gives_the_same_model_without_a_clock():
    done, _ = _drive(12.0, trials=2)
    again, clock = _drive(0.001, replay=done.steps, trials=2)
    assert again.model.value == done.model.value
    assert again.steps == done.steps
    assert [e["score"] for e in again.history] == [e["score"] for e in done.history]
    assert clock.elapsed > 1.0  # the recorded steps were taken, whatever the budget


def test_trials_differ_and_the_best_wins():
    done, _ = _drive(30.0, trials=3)
    by_trial = [min(e["score"] for e in done.history if e["trial"] == trial) for trial in range(3)]
    assert len(set(by_trial)) == 3
    assert abs(done.model.value - 3.0) == pytest.approx(min(by_trial), abs=1e-6)


def test_interrupting_keeps_the_best_so_far():
    seen = []

    def progress(moment):
        if moment.step:  # before that, it compiles
            seen.append(moment)
        if len(seen) == 4:
            raise KeyboardInterrupt

    done, _ = _drive(20.0, progress=progress)
    assert len(done.history) == 4
    assert abs(done.model.value - 3.0) == pytest.approx(
        min(entry["score"] for entry in done.history), abs=1e-6
    )
    assert "interrupted" in done.note
    assert seen[0].stage == "sup"
    assert seen[0].seconds_left < 20.0


def test_interrupting_before_anything_is_learnt_gives_the_closed_form():
    def stop():
        raise KeyboardInterrupt

    done, _ = _drive(10.0, make=stop)
    assert (done.method, done.model.kind) == ("ridge", "linear")
    assert "interrupted" in done.note
    assert "ridge" in done.note


def test_a_budget_too_small_to_compile_gives_the_closed_form():
    done, _ = _drive(2.0, compile_cost=1e6)
    assert (done.method, done.model.kind) == ("ridge", "linear")
    assert "too small to compile walker" in done.note
    assert done.steps == []


def test_a_learner_that_finds_nothing_finite_gives_the_closed_form():
    time = FakeTime()
    learner = Walker(time)
    learner.validate = lambda carry, stage, seed: Validation(float("inf"), float("inf"), {})
    done, _ = _drive(3.0, time, learner)
    assert (done.method, done.model.kind) == ("ridge", "linear")
    assert done.note


def test_nothing_is_compiled_after_the_first_stage_begins():
    """Chunks of every length, rounds and trials run what was compiled at the start."""
    compiled: list[tuple[str, float]] = []
    started: list[int] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append((event, seconds))

    def progress(moment):
        if moment.step and not started:
            started.append(len(compiled))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        done, _ = _drive(20.0, trials=2, progress=progress)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    lengths = {count for entry in done.steps for count in entry["chunks"]}
    assert len(lengths) > 3
    assert started
    assert started[0] > 0
    assert len(compiled) == started[0]


def test_nonsense_is_refused():
    with pytest.raises(FeasiblyError, match="positive number of seconds"):
        Clock(0.0)
    for budget in (float("inf"), float("nan"), -1.0):
        with pytest.raises(FeasiblyError, match="positive number of seconds and finite"):
            Clock(budget)
    assert Clock(1e300).left > 1e299


def test_pace_never_promises_more_than_fits():
    pace = Pace(1.0)
    assert pace.steps(5.0) == 1
    pace.learn(1, 0.1)
    assert pace.steps(5.0) == 10
    assert pace.steps(0.35) == 3
    assert pace.steps(0.05) == 0
    assert pace.steps(-1.0) == 0
