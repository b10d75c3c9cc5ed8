"""Networks with one answer: ML4OPF's losses with its bound-repair layer, and the paper's `sandwich-dnn`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.model.belief import Covariance
from feasibly.model.deterministic import Network
from feasibly.model.networks import Architecture
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap, floored
from feasibly.train.choices import among, number
from feasibly.train.driver import Learner, Stage, Validation
from feasibly.train.feasibility import residuals
from feasibly.train.merit import Judge
from feasibly.train.optimise import adam, clipped, decayed
from feasibly.train.task import Task
from feasibly.train.turns import ByTurns, TurnSettings, loop, picked

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PenaltySettings:
    """ML4OPF's baselines, with the values of the paper's appendix B."""

    loss: str = among("mae", "mse")
    """`mae` or `mse`, over all outputs in their own units."""
    constraints: str = among("none", "penalty", "dual")
    """`none`, `penalty` (violations weighted by `multiplier`) or `dual` (by multipliers that grow with them)."""
    multiplier: float = number(1e-2, least=0.0)
    dual_step: float = number(1e-2, least=0.0)
    dual_kick_in: int = number(0, least=0)
    """The epoch at which multipliers begin to grow."""
    dual_every: int = number(1, least=1)
    """Epochs from one update of the multipliers to the next."""
    width: float = number(2.0, above=0.0)
    """Hidden units for every output."""
    hidden_layers: int = number(2, least=0)
    learning_rate: float = number(1e-4, above=0.0)
    batch: int = number(32, least=0)
    """Labelled rows a step; 0 for all."""
    repair: str = among("sigmoid", "clip", "none")
    normalised: bool = False
    """Whether inputs are normalised. ML4OPF takes them as they are, in per unit, which does better: the loads that
    matter are the large ones."""
    keep: str = among("loss", "merit")
    """Which state is returned: the best on the validation labels by the prediction `loss`, or by `merit`. Answers kept
    inside their bounds by repair start with almost no inequality violated, so that merit prefers early states that
    hardly tell one instance from another."""


@dataclass(frozen=True)
class SandwichSettings(TurnSettings):
    """A network like the Bayesian ones, trained by turns on the labels and on F."""

    l1: float = number(1e-6, least=0.0)
    """Weight of the sum of absolute weights, in both stages."""


class Carry(NamedTuple):
    """What goes from step to step; `duals` and what follows serve `lagrangian-dual` alone."""

    parameters: Any
    optimiser: Any
    step: Any
    key: Any
    rate: Any
    decay: Any
    order: Any
    duals: Any
    tally: Any


class NetworkLearner(Learner):
    """What the deterministic learners share: one parameter vector, judged by its answers."""

    architecture: Architecture
    inputs: Scale
    outputs: OutputMap
    task: Task

    def _prepare(self) -> None:
        self.judge = Judge(self.task.problem, self.task.x_valid, self.task.y_valid)
        self._valid = self._scaled(self.task.x_valid)
        self._answers = jax.jit(self.architecture.forward)

    def init(self, seed: int) -> Any:
        """Weights as a network is usually started."""
        return jnp.asarray(self.architecture.initial(seed))

    def state(self, carry: Carry) -> Any:
        """The parameters."""
        return carry.parameters

    def validate(self, carry: Carry, stage: Stage, seed: int) -> Validation:
        """By the merit of the answers."""
        metrics = self.judge.metrics(self._answer(carry.parameters))
        merit = self.judge.merit(metrics)
        return Validation(score=merit, stage_score=merit, metrics=metrics)

    def finish(self, state: Any, seed: int) -> Network:
        """The parameters as a model, its covariance from the validation residuals."""
        return Network(
            architecture=self.architecture,
            inputs=self.inputs,
            outputs=self.outputs,
            parameters=np.asarray(state),
            covariance=Covariance.pooled(self.task.y_valid - self._answer(state)),
        )

    def _answer(self, parameters: Any) -> Array:
        return self.outputs.answers(np.asarray(self._answers(parameters, self._valid)))

    def _scaled(self, x: Array) -> NDArray[np.float32]:
        return self.inputs.apply(x).astype(np.float32)


class PenaltyLearner(NetworkLearner):
    """`mae`, `mse`, their penalty variants, and `lagrangian-dual`."""

    def __init__(self, name: str, task: Task, settings: PenaltySettings) -> None:
        problem = task.problem
        self.name = name
        self.task = task
        self.settings = settings
        self.stages = (Stage("train", 1, 1.0),)
        hidden = (max(round(settings.width * problem.n_outputs), 1),) * settings.hidden_layers
        self.architecture = Architecture(problem.n_inputs, hidden, (problem.n_outputs,), output_bias=True)
        identity = Scale(np.zeros(problem.n_inputs), np.ones(problem.n_inputs))
        self.inputs = floored(np.concatenate([task.x, task.unlabelled])) if settings.normalised else identity
        self.outputs = OutputMap(floored(task.y), problem.lower, problem.upper, settings.repair)
        self._residuals = residuals(problem)
        self._count = problem.n_equalities, problem.n_inequalities
        self.batch = min(settings.batch, len(task.x)) if settings.batch > 0 else len(task.x)
        self.batches = len(task.x) // self.batch
        self._prepare()

    def init(self, seed: int) -> Any:
        """Weights and biases as Torch, and so ML4OPF, starts them."""
        return jnp.asarray(self.architecture.initial(seed, bias_gain=1.0 / 3.0))

    def begin(self, state: Any, stage: Stage, seed: int) -> Carry:
        """A fresh optimiser, and multipliers of zero."""
        problem = self.task.problem
        bounds = int(np.isfinite(problem.lower).sum() + np.isfinite(problem.upper).sum())
        constraints = sum(self._count) + bounds
        state = jnp.copy(state)
        return Carry(
            parameters=state,
            optimiser=adam().init(state),
            step=jnp.int32(0),
            key=jax.random.key(seed),
            rate=jnp.float32(self.settings.learning_rate),
            decay=jnp.float32(0.0),
            order=jnp.arange(len(self.task.x), dtype=jnp.int32),
            duals=jnp.zeros(constraints, jnp.float32),
            tally=jnp.zeros(constraints, jnp.float32),
        )

    def validate(self, carry: Carry, stage: Stage, seed: int) -> Validation:
        """By the loss over the validation labels, or by merit."""
        answers = self._answer(carry.parameters)
        metrics = self.judge.metrics(answers)
        error = answers - self.task.y_valid
        loss = float(np.mean(np.abs(error) if self.settings.loss == "mae" else error * error))
        score = loss if self.settings.keep == "loss" else self.judge.merit(metrics)
        return Validation(score=score, stage_score=score, metrics={**metrics, "loss_valid": loss})

    def data(self, program: str) -> Any:
        """Scaled inputs, inputs and labels."""
        task = self.task
        return self._scaled(task.x), task.x.astype(np.float32), task.y.astype(np.float32)

    def advance(self, program: str) -> Callable[[Carry, Any, Any], tuple[Carry, Any]]:
        """Adam over shuffled batches; the multipliers are updated when an epoch is over."""
        settings = self.settings

        def loss(parameters: Any, duals: Any, batch: Any) -> tuple[Any, Any]:
            x, x_raw, y = batch
            answer = self.outputs.answer(self.architecture.forward(parameters, x))
            error = answer - y
            value = jnp.mean(jnp.abs(error) if settings.loss == "mae" else error * error)
            if settings.constraints == "none":
                return value, jnp.zeros_like(duals)
            violated = self._violated(x_raw, answer)
            weights = settings.multiplier if settings.constraints == "penalty" else duals[:, None]
            return value + self._by_kind(weights * violated), jnp.mean(violated, axis=1)

        def step(carry: Carry, data: Any) -> tuple[Carry, Any]:
            place = carry.step % self.batches
            epoch = carry.step // self.batches
            order = jax.lax.cond(
                place == 0,
                lambda: jax.random.permutation(jax.random.fold_in(carry.key, epoch), len(carry.order)).astype(
                    jnp.int32
                ),
                lambda: carry.order,
            )
            chosen = jax.lax.dynamic_slice_in_dim(order, place * self.batch, self.batch)
            batch = tuple(part[chosen] for part in data)
            (value, violated), gradient = jax.value_and_grad(loss, has_aux=True)(
                carry.parameters, carry.duals, batch
            )
            updates, optimiser = adam().update(gradient, carry.optimiser)
            tally = carry.tally + violated / self.batches
            over = place == self.batches - 1
            due = over & (epoch >= settings.dual_kick_in) & (epoch % settings.dual_every == 0)
            carry = carry._replace(
                parameters=carry.parameters - carry.rate * updates,
                optimiser=optimiser,
                step=carry.step + 1,
                order=order,
                duals=jnp.where(due, carry.duals + settings.dual_step * tally, carry.duals),
                tally=jnp.where(over, 0.0, tally),
            )
            return carry, value

        return loop(step)

    def _violated(self, x: Any, answer: Any) -> jax.Array:
        """How far every constraint is violated: equalities, inequalities, then bounds; `(constraints, rows)`."""
        equal, unequal = self._residuals(x.T, answer.T)
        return jnp.concatenate([jnp.abs(equal), jax.nn.relu(unequal)])

    def _by_kind(self, weighted: Any) -> jax.Array:
        """The mean of each kind of constraint, added up, as ML4OPF does."""
        equalities, inequalities = self._count
        kinds = jnp.split(weighted, [equalities, equalities + inequalities])
        return sum((jnp.mean(kind) for kind in kinds if kind.shape[0]), jnp.float32(0.0))


class SandwichNetworkLearner(ByTurns, NetworkLearner):
    """`sandwich-dnn`: mean squared error and F by turns, with l1 on the weights."""

    def __init__(self, name: str, task: Task, settings: SandwichSettings) -> None:
        super().__init__(name, task, settings)
        self.settings = settings
        self._prepare()

    def begin(self, state: Any, stage: Stage, seed: int) -> Carry:
        """A fresh optimiser at the round's rate."""
        state = jnp.copy(state)
        nothing = jnp.zeros(0, jnp.float32)
        return Carry(
            parameters=state,
            optimiser=adam().init(state),
            step=jnp.int32(0),
            key=jax.random.key(seed),
            rate=jnp.float32(self.settings.learning_rate / stage.round),
            decay=jnp.float32(self.settings.decay / stage.round),
            order=nothing,
            duals=jnp.copy(nothing),
            tally=jnp.copy(nothing),
        )

    def data(self, program: str) -> Any:
        """Scaled inputs, and what they are compared with."""
        task = self.task
        if program == "sup":
            return self._scaled(task.x), self.outputs.normalised(task.y).astype(np.float32)
        return self._scaled(task.unlabelled), task.unlabelled.astype(np.float32)

    def advance(self, program: str) -> Callable[[Carry, Any, Any], tuple[Carry, Any]]:
        """Adam on one of the two losses; biases rest in UnSup, as in the Bayesian version."""
        settings = self.settings
        is_weight = self.architecture.is_weight
        size = settings.batch if program == "sup" else settings.unlabelled_batch

        def loss(parameters: Any, batch: Any) -> Any:
            x, other = batch
            z = self.architecture.forward(parameters, x)
            if program == "sup":
                if settings.repair != "none":
                    z = self.outputs.normalised(self.outputs.answer(z)).astype(jnp.float32)
                value = jnp.mean((z - other) ** 2)
            else:
                value = jnp.mean(self._violation(other, self.outputs.answer(z)))
            return value + settings.l1 * jnp.sum(jnp.where(is_weight, jnp.abs(parameters), 0.0))

        def step(carry: Carry, data: Any) -> tuple[Carry, Any]:
            data, _ = picked(data, size, jax.random.fold_in(carry.key, carry.step))
            value, gradient = jax.value_and_grad(loss)(carry.parameters, data)
            if program == "unsup":
                gradient = jnp.where(is_weight, gradient, 0.0)
            updates, optimiser = adam().update(clipped(gradient, settings.clip), carry.optimiser)
            rate = decayed(carry.rate, carry.decay, carry.step)
            carry = carry._replace(
                parameters=carry.parameters - rate * updates, optimiser=optimiser, step=carry.step + 1
            )
            return carry, value

        return loop(step)
