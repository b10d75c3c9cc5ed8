"""The thing a user holds: a belief, the answers it leads to, and what may be promised of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly._codec import record
from feasibly._words import named
from feasibly.answer.calibration import Calibration
from feasibly.answer.driver import Driver
from feasibly.answer.ladder import DRAWS, TOLERANCE, Ladder, Leverage
from feasibly.answer.record import Answer
from feasibly.model.belief import Model
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.certificate import Certificate
    from feasibly.proof import Prover

Array = NDArray[np.float64]


@record("training")
@dataclass(frozen=True)
class TrainingRecord:
    """How a proxy came about."""

    method: str
    labels: int
    unlabelled: int
    budget_seconds: float
    train_seconds: float
    seed: int
    trials: int = 1
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Where the time went."""
    history: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    asked: str = ""
    """The method that was asked for, where it was not learnt and `method` says what it is instead; `note` says why."""

    @property
    def stands_in(self) -> bool:
        """Whether the model is another than the one that was asked for."""
        return bool(self.asked) and self.asked != self.method

    @property
    def named(self) -> dict[str, str]:
        """For JSON: `method` is what it is, and `asked`, where another was asked for, that."""
        return {"method": self.method, **({"asked": self.asked} if self.stands_in else {})}

    @property
    def label(self) -> str:
        """The method in one or two words, for first lines and tables: `ridge (instead of response)`."""
        return named(self.method, self.asked if self.stands_in else "")


class Proxy:
    """A trained stand-in for the solver of one problem. Made by `fit`, or by `Proxy.load`."""

    def __init__(
        self,
        problem: Problem,
        model: Model,
        record: TrainingRecord,
        *,
        keys: NDArray[np.bytes_],
        calibration: Calibration | None,
        driver: Driver | None = None,
        box: tuple[Array, Array] | None = None,
        leverage: Leverage | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.problem = problem
        self.model = model
        self.record = record
        self.keys = keys
        self.calibration = calibration
        self.box = box
        self.leverage = leverage
        self.ladder = Ladder(
            problem, model, self._make_driver if driver is None else lambda: driver, box, leverage
        )
        self.certificate = certificate
        self._prover: Prover | None = None

    @property
    def method(self) -> str:
        """The name of the method that made it."""
        return self.record.method

    @property
    def outlook(self) -> str:
        """How hard the problem turned out to be in training, and whether a proxy pays; empty if nobody has measured."""
        return "" if self.calibration is None else self.calibration.outlook

    @property
    def certificate(self) -> Certificate | None:
        """What is promised of its answers; made by `certify`, saved with the proxy, used by `predict`."""
        return self._certificate

    @certificate.setter
    def certificate(self, given: Certificate | None) -> None:
        if given is not None and given.model != self.digest():
            raise FeasiblyError("this certificate was made for another model; certify this one")
        # Two problems may share their optima, and so a model, and differ in cost and limits.
        if given is not None and given.fingerprint not in ("", self.problem.fingerprint):
            raise FeasiblyError(
                f"this certificate was made for another problem ({given.problem}); certify this one"
            )
        self._certificate = given

    def digest(self) -> str:
        """A hash of everything that shapes its answers, the same after saving and loading."""
        from feasibly._storage import digest

        return digest(self.model, self.calibration)

    def _make_driver(self) -> Driver:
        if self.calibration is None:
            raise FeasiblyError(
                f"this proxy, {self.record.label}, was made without the constants of conditioning; ask for the mean, "
                "or train it again with a larger budget"
            )
        return Driver(self.problem, self.calibration, self.model.covariance)

    def predict(
        self,
        x: ArrayLike,
        answer: str = "conditioned",
        *,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        draws: int = DRAWS,
        region: str = "joint",
        prove: bool = False,
    ) -> Answer:
        """Answer each row of `x`: shape `(rows, n_inputs)`, or one input of shape `(n_inputs,)`.

        Threads may call it at the same time; they take turns in compiled code.

        Args:
            x: inputs in the problem's units. A JAX array of rows stays on its device, and so do its `conditioned`
                answers, unless they come with a certificate or proofs, which are made on the host.
            answer: `mean`, `svp`, `conditioned`, `polished`, `solved`, or `auto`.
            tolerance: a violation above this flags the row, and makes `auto` climb.
            seed, draws: of the posterior draws of `svp`.
            region: with a certificate, whether the intervals hold for all outputs together (`joint`) or for each one
                (`each`, narrower). Where the promise is void they are NaN and `warnings` says why.
            prove: also a proven lower bound on the cost of every feasible answer, in `lower_bound`, and the gap that it
                leaves. For a grid the first proof takes about as long as training (see `prover`).
        """
        rows = np.asarray(x, dtype=np.float64)
        rows = rows[None] if rows.ndim == 1 else rows
        rows, _ = self.problem.check_rows(rows)
        made = self.certificate
        if (
            isinstance(x, jax.Array)
            and answer == "conditioned"
            and made is None
            and x.ndim == 2
            and len(x)
            and not prove
        ):
            return self.ladder.answer_on_device(x, tolerance)
        trust = None if made is None or made.rule is None else made.rule.trusts
        found = self.ladder.answer(rows, answer, tolerance=tolerance, seed=seed, draws=draws, trust=trust)
        if made is not None:
            found = made.attach(
                found, rows, answer, names=self.problem.input_names, tolerance=tolerance, seed=seed, draws=draws,
                region=region,
            )  # fmt: skip
        if prove:
            from feasibly.proof import prove as with_proof

            found = with_proof(self, found)
        return found

    def function(self, answer: str = "conditioned", *, unreached: str = "solver") -> Callable[[Any], Any]:
        """Answers as a function of one input in JAX, `f(x) -> y`: `jit`, `vmap`, `jvp`, `vjp`, `jacobian` work on it.

        Derivatives come from the optimality conditions at the answer (implicit function theorem), forwards and
        backwards, never by unrolling; where a constraint begins to press they are those of one side. Derivatives of
        derivatives are not defined. The program around it must compute in float64
        (`jax.config.update("jax_enable_x64", True)`), and says so if it does not.

        Rows that shared operators reach are answered inside the traced program, as part of it. Those that they do not
        (and all rows of models whose answers are found with sparse factorisations, or of `solved`) are handed to the
        solver by a callback.

        Args:
            answer: `conditioned`, `polished` or `solved`. The derivative is that of the optimum in each case, so
                `polished` is the one to take where its last digits matter.
            unreached: `solver`, or `nan` for a program without callbacks, in which rows that are not reached are NaN.

        Raises:
            FeasiblyError: `nan` was asked for and there is no such program.
        """
        from feasibly.answer.implicit import answer_function, programs

        self._check_differentiable(answer)
        if unreached not in ("solver", "nan"):
            raise FeasiblyError(f"unreached is `solver` or `nan`, not {unreached!r}")
        inside = programs(self.ladder.driver, self.model, answer)
        if inside is None and unreached == "nan":
            raise FeasiblyError(
                f"{answer} answers of this model are not found by a program in JAX alone; leave out unreached"
            )

        driver = self.ladder.driver
        if (
            unreached == "solver" and not driver.rowwise.available
        ):  # which also builds it, before anyone calls back
            raise FeasiblyError(
                "this problem has no solver here, which rows that shared operators do not reach are left to; install "
                'casadi, or ask for unreached="nan"'
            )
        solve, outside = unreached == "solver", driver.rowwise.solve_without_jax
        return answer_function(self.problem, outside, inside, settings=driver.settings, solve=solve)

    def sensitivity(
        self, x: ArrayLike, directions: ArrayLike | None = None, *, answer: str = "polished"
    ) -> Array:
        """How the answer to each row of `x` moves with its input: `(rows, n_outputs, k)`.

        Args:
            x: inputs, `(rows, n_inputs)` or one of shape `(n_inputs,)`.
            directions: `(n_inputs, k)`: only these combinations of inputs are followed; all inputs if not given.
            answer: which answer to stand on: `conditioned`, `polished` or `solved`.

        The derivative of the optimum by the implicit function theorem. Where a constraint begins to press, that of one
        side, or one between the two. Rows without an answer, or without a derivative (an optimum that jumps), are NaN.
        """
        from feasibly.answer.implicit import sensitivity

        self._check_differentiable(answer)
        rows = np.asarray(x, dtype=np.float64)
        rows, _ = self.problem.check_rows(rows[None] if rows.ndim == 1 else rows)
        found = self.ladder.answer(rows, answer)
        return sensitivity(self.problem, self.ladder.driver.rowwise, found, directions)

    def _check_differentiable(self, answer: str) -> None:
        if answer not in ("conditioned", "polished", "solved"):
            raise FeasiblyError(
                f"derivatives are those of an optimum, and {answer!r} is not near one; choose conditioned, polished or "
                "solved"
            )

    @property
    def prover(self) -> Prover:
        """What makes proofs for a grid; learnt on first use, saved with the proxy if it is there by then."""
        if self._prover is None:
            self.learn_proofs()
        assert self._prover is not None
        return self._prover

    def learn_proofs(self, *, labels: int = 64, budget: float = 120.0, seed: int = 0) -> None:
        """Learn what `predict(x, prove=True)` needs for a grid, ahead of its first use; `save` then keeps it.

        Args:
            labels: how many instances of the relaxation to solve.
            budget: wall-clock seconds for learning from them, at most.
            seed: of the inputs drawn.
        """
        from feasibly.proof import Prover

        self._prover = Prover.train(self, labels=labels, budget=budget, seed=seed)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the proxy to a folder: safetensors and JSON, nothing that runs when it is read."""
        from feasibly._storage import save_proxy

        save_proxy(self, path, overwrite=overwrite)

    @staticmethod
    def load(path: str | os.PathLike[str], problem: Problem | None = None) -> Proxy:
        """Read a proxy. One of a user's own problem needs that `problem`, which is checked against it.

        What its answers compile is kept for the next process, unless `FEASIBLY_CACHE=off` (see the docs on starting).
        """
        from feasibly._compiled import keep_compiled
        from feasibly._storage import load_proxy

        keep_compiled()
        return load_proxy(path, problem)

    def __repr__(self) -> str:
        return f"Proxy({self.problem.name!r}, method={self.record.label!r}, labels={self.record.labels})"
