"""`supervised-bnn` and `sandwich-bnn`: the paper's own learners (section 3 and appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.model.posterior import DRAWS, BayesianNetwork, predictive_covariance
from feasibly.train.choices import among, number
from feasibly.train.driver import Learner, Stage, Validation
from feasibly.train.merit import Judge
from feasibly.train.optimise import adam, clipped, decayed
from feasibly.train.task import Task
from feasibly.train.turns import ByTurns, TurnSettings, loop, picked
from feasibly.train.variational import (
    NoisePrior,
    Posterior,
    Prior,
    divergence,
    draw,
    draw_log_noise,
    feasibility_surprise,
    label_surprise,
    noise_terms,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BayesianSettings(TurnSettings):
    """Everything the text fixes and everything it leaves open; `docs/learners.md` says what was chosen and why."""

    prior_variance: float = number(1e-2, above=0.0)
    """The public code has 1e-4."""
    chained: bool = True
    """Whether a stage's prior is the posterior of the stage before (figure 1) or the first prior throughout."""
    noise_mean: float = number(1e-5, above=0.0)
    noise_variance: float = number(1e-6, above=0.0)
    """Of the prior of the labels' noise variance, in normalised units."""
    noise_start: float = number(1e-2, above=0.0)
    feasibility_variance: float = number(1e-10, above=0.0)
    """In UnSup. The public code has 1e-28."""
    sup_feasibility: float = number(0.0, least=0.0)
    """Standard deviation, relative to that of the first block's noise, with which Sup also observes F = 0 on the
    labelled inputs. 0 leaves it out, as the text does; the public code has 0.01."""
    free_biases: bool = False
    """Whether UnSup also changes biases."""
    start_std: float = number(1e-3, above=0.0)
    """Of every parameter before training."""
    start_gain: float = number(1.0 / 3.0, above=0.0)
    """The weights' means are first drawn with this variance, divided by the number of inputs of their layer."""
    estimator: str = among("shared", "local")
    """`shared`: one draw of the weights a step. `local`: one for every row, by local reparameterisation."""
    keep: str = among("merit", "elbo", "last")
    """Which state is returned: `merit`, the best on the validation labels; `elbo`, the last stage's best by its own
    objective, as in the public code, each stage handing on its best; `last`, the last."""
    patience_sup: int = number(0, least=0)
    patience_unsup: int = number(0, least=0)
    """With these many validations without improvement a stage ends early; 0 for never. The public code has 3 and 5."""
    validation_draws: int = number(20, least=1)
    draws: int = number(DRAWS, least=2)
    """Behind the mean and variance of the trained model."""


TEXT = BayesianSettings(unlabelled_batch=0, keep="elbo", validation_draws=50)
"""The paper's text to the letter, as far as it goes."""

PUBLIC_CODE = BayesianSettings(
    width=1.0, prior_variance=1e-4, noise_variance=1e-12, feasibility_variance=1e-28, chained=False,
    sup_feasibility=0.01, closing_share=0.0, unlabelled_batch=0, keep="elbo", patience_sup=3, patience_unsup=5,
    validation_draws=50, draws=100,
)  # fmt: skip
"""What the paper's public code does where it departs from the text."""


class Carry(NamedTuple):
    """What goes from step to step."""

    posterior: Posterior
    prior: Prior
    optimiser: Any
    step: Any
    key: Any
    rate: Any
    decay: Any


class BayesianLearner(ByTurns, Learner):
    """Mean-field variational inference, in stages."""

    def __init__(self, name: str, task: Task, settings: BayesianSettings) -> None:
        super().__init__(name, task, settings)
        self.settings = settings
        self.keeps_best = settings.keep == "merit"
        self.passes_best = settings.keep == "elbo"
        self.patience = {"sup": settings.patience_sup, "unsup": settings.patience_unsup}
        sizes = self.architecture.outputs
        self.block_of = np.repeat(np.arange(len(sizes)), sizes)
        self.judge = Judge(task.problem, task.x_valid, task.y_valid)
        self._answers = jax.jit(self._drawn)
        self._bounds = jax.jit(self._bound, static_argnums=3)
        self._valid = self._scaled(task.x_valid)
        self._valid_y = self.outputs.normalised(task.y_valid).astype(np.float32)

    # ---- what the driver asks for ----------------------------------------------------------------------

    def init(self, seed: int) -> Posterior:
        """Weights as a network is usually started, each with a small spread."""
        size, blocks = self.architecture.size, len(self.architecture.outputs)
        return Posterior(
            mean=jnp.asarray(self.architecture.initial(seed, self.settings.start_gain)),
            log_std=jnp.full(size, np.log(self.settings.start_std), jnp.float32),
            noise_mean=jnp.full(blocks, np.log(self.settings.noise_start), jnp.float32),
            noise_log_std=jnp.full(blocks, -3.0, jnp.float32),
        )

    def begin(self, state: Posterior, stage: Stage, seed: int) -> Carry:
        """A fresh optimiser and the prior of the stage."""
        first = stage.program == "sup" and stage.round == 1
        state = jax.tree.map(jnp.copy, state)
        if not self.settings.chained:
            prior = Prior(jnp.float32(0.0), jnp.float32(0.5 * np.log(self.settings.prior_variance)))
        elif first:
            level = jnp.full_like(state.mean, 0.5 * np.log(self.settings.prior_variance))
            prior = Prior(jnp.zeros_like(state.mean), level)
        else:
            prior = Prior(jnp.copy(state.mean), jnp.copy(state.log_std))
        return Carry(
            posterior=state,
            prior=prior,
            optimiser=adam().init(state),
            step=jnp.int32(0),
            key=jax.random.key(seed),
            rate=jnp.float32(self.settings.learning_rate / stage.round),
            decay=jnp.float32(self.settings.decay / stage.round),
        )

    def data(self, program: str) -> Any:
        """Scaled inputs, and what they are compared with."""
        task = self.task
        if program == "sup":
            labels = self.outputs.normalised(task.y).astype(np.float32)
            return self._scaled(task.x), task.x.astype(np.float32), labels
        return self._scaled(task.unlabelled), task.unlabelled.astype(np.float32)

    def advance(self, program: str) -> Callable[[Carry, Any, Any], tuple[Carry, Any]]:
        """A loop of Adam steps on the negative evidence bound."""
        loss = self.sup_loss if program == "sup" else self.unsup_loss
        fixed = None if program == "sup" or self.settings.free_biases else ~self.architecture.is_weight

        def step(carry: Carry, data: Any) -> tuple[Carry, Any]:
            key = jax.random.fold_in(carry.key, carry.step)
            value, gradient = jax.value_and_grad(loss)(carry.posterior, carry.prior, key, data)
            if fixed is not None:
                gradient = gradient._replace(
                    mean=jnp.where(fixed, 0.0, gradient.mean), log_std=jnp.where(fixed, 0.0, gradient.log_std)
                )
            updates, optimiser = adam().update(clipped(gradient, self.settings.clip), carry.optimiser)
            rate = decayed(carry.rate, carry.decay, carry.step)
            posterior = jax.tree.map(lambda old, update: old - rate * update, carry.posterior, updates)
            return carry._replace(posterior=posterior, optimiser=optimiser, step=carry.step + 1), value

        return loop(step)

    def state(self, carry: Carry) -> Posterior:
        """The posterior."""
        return carry.posterior

    def validate(self, carry: Carry, stage: Stage, seed: int) -> Validation:
        """By the merit of SvP and of the mean over a few draws."""
        outputs = np.asarray(self._answers(carry.posterior, jax.random.key(seed), self._valid))
        answers = self.outputs.answers(outputs)
        mean = self.judge.metrics(np.mean(answers, axis=0))
        best = self.judge.metrics(self._selected(answers))
        metrics = {f"mean_{name}": value for name, value in mean.items()} | best
        merit = self.judge.merit(best)
        own = merit
        if self.settings.keep == "elbo":
            own = float(self._bounds(carry.posterior, carry.prior, outputs, stage.program))
        return Validation(score=merit, stage_score=own, metrics=metrics)

    def finish(self, state: Posterior, seed: int) -> BayesianNetwork:
        """The posterior as a model, its covariance from the validation rows."""
        outputs = np.asarray(self._answers(state, jax.random.key(seed), self._valid))
        answers = self.outputs.answers(outputs)
        mean = np.mean(answers, axis=0)
        spread = (answers - mean).reshape(-1, mean.shape[1])
        # A few hundred directions are as many as anyone uses; evenly spaced, so that every row and draw has a say.
        picked = spread[:: max(len(spread) // 256, 1)]
        noise = np.exp(np.asarray(state.noise_mean, dtype=np.float64))[self.block_of]
        return BayesianNetwork(
            architecture=self.architecture,
            inputs=self.inputs,
            outputs=self.outputs,
            mean=np.asarray(state.mean),
            log_std=np.asarray(state.log_std),
            noise=noise,
            covariance=predictive_covariance(self.task.y_valid - mean, picked),
            count=self.settings.draws,
            seed=seed,
        )

    # ---- the two objectives ----------------------------------------------------------------------------

    def sup_loss(self, posterior: Posterior, prior: Prior, key: Any, data: Any) -> Any:
        """The negative evidence bound of the labels."""
        of_rows, of_weights, of_noise = jax.random.split(key, 3)
        (x, x_raw, y), weight = picked(data, self.settings.batch, of_rows)
        z = self._forward(posterior, x, of_weights)
        answer = None
        if self.settings.repair != "none":
            answer = self.outputs.answer(z)
            z = self.outputs.normalised(answer).astype(jnp.float32)
        log_noise = draw_log_noise(posterior, of_noise)
        surprise = label_surprise(z - y, log_noise, self.block_of)
        if self.settings.sup_feasibility > 0.0:
            answer = self.outputs.answer(z) if answer is None else answer
            variance = self.settings.sup_feasibility**2 * jnp.exp(log_noise[0])
            surprise = surprise + feasibility_surprise(self._violation(x_raw, answer), variance)
        noise = NoisePrior(self.settings.noise_mean, self.settings.noise_variance**0.5)
        return weight * surprise + noise_terms(posterior, noise, log_noise) + divergence(posterior, prior)

    def unsup_loss(self, posterior: Posterior, prior: Prior, key: Any, data: Any) -> Any:
        """The negative evidence bound of F = 0 on unlabelled inputs."""
        of_rows, of_weights = jax.random.split(key)
        (x, x_raw), weight = picked(data, self.settings.unlabelled_batch, of_rows)
        answer = self.outputs.answer(self._forward(posterior, x, of_weights))
        surprise = feasibility_surprise(self._violation(x_raw, answer), self.settings.feasibility_variance)
        learnt = None if self.settings.free_biases else self.architecture.is_weight
        return weight * surprise + divergence(posterior, prior, learnt)

    # ---- parts -----------------------------------------------------------------------------------------

    def _forward(self, posterior: Posterior, x: Any, key: Any) -> jax.Array:
        if self.settings.estimator == "local":
            return self.architecture.forward_local(posterior.mean, jnp.exp(posterior.log_std), x, key)
        return self.architecture.forward(draw(posterior, key), x)

    def _drawn(self, posterior: Posterior, key: Any, x: Any) -> jax.Array:
        keys = jax.random.split(key, self.settings.validation_draws)
        return jax.lax.map(lambda key: self.architecture.forward(draw(posterior, key), x), keys)

    def _scaled(self, x: Array) -> NDArray[np.float32]:
        return self.inputs.apply(x).astype(np.float32)

    def _selected(self, answers: Array) -> Array:
        """The paper's SvP among the validation draws `(draws, rows, n_outputs)`."""
        count, rows, width = answers.shape
        problem = self.task.problem
        if problem.equality is None or not np.isfinite(answers).all():
            return np.asarray(np.mean(answers, axis=0))
        equal = problem.equalities(np.tile(self.task.x_valid, (count, 1)), answers.reshape(-1, width))
        worst = np.max(np.abs(equal), axis=1).reshape(count, rows)
        return np.asarray(answers[np.argmin(worst, axis=0), np.arange(rows)])

    def _bound(self, posterior: Posterior, prior: Prior, z: Any, program: str) -> jax.Array:
        """The stage's own objective on the validation rows, averaged over draws `(draws, rows, n_outputs)`."""
        if program == "sup":
            target, rows = self._valid_y, len(self.task.x)
            terms = jax.lax.map(lambda z: label_surprise(z - target, posterior.noise_mean, self.block_of), z)
        else:
            x, rows = self.task.x_valid.astype(np.float32), len(self.task.unlabelled)
            variance = self.settings.feasibility_variance
            terms = jax.lax.map(
                lambda z: feasibility_surprise(self._violation(x, self.outputs.answer(z)), variance), z
            )
        return jnp.mean(terms) * (rows / len(self.task.x_valid)) + divergence(posterior, prior)
