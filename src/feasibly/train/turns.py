"""What the learners of the sandwich share: Sup on labels and UnSup on feasibility, by turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.model.networks import Architecture
from feasibly.model.scaling import OutputMap, floored
from feasibly.train.choices import among, number
from feasibly.train.driver import Stage
from feasibly.train.feasibility import feasibility
from feasibly.train.task import Task

Carry = TypeVar("Carry")


@dataclass(frozen=True)
class TurnSettings:
    """How time is divided, how large the network is, and how it is stepped."""

    rounds: int = number(3, least=0)
    """Rounds of Sup and UnSup; 0 for Sup alone."""
    sup_share: float = number(0.4, least=0.0, most=1.0)
    """Of a round's time."""
    closing_share: float = number(0.3, least=0.0, most=1.0)
    """Of the last UnSup's time, for the Sup that ends the run; 0 ends in UnSup."""
    width: float = number(2.0, above=0.0)
    """Hidden units for every input. The public code has 1."""
    hidden_layers: int = number(2, least=0)
    output_bias: bool = False
    lambda_e: float = number(1.0, least=0.0)
    lambda_i: float = number(1.0, least=0.0)
    learning_rate: float = number(1e-3, above=0.0)
    decay: float = number(1e-4, least=0.0)
    """The rate after n steps of a stage in round r is `learning_rate / r / (1 + decay / r * n)`."""
    clip: float = number(10.0, above=0.0)
    batch: int = number(0, least=0)
    """Labelled rows a step; 0 for all."""
    unlabelled_batch: int = number(512, least=0)
    """Unlabelled rows a step; 0 for all, as in the text."""
    repair: str = among("none", "sigmoid", "clip")
    """`none`, `sigmoid` or `clip`: what keeps answers within bounds."""


def sandwich(settings: TurnSettings, unlabelled: bool = True) -> tuple[Stage, ...]:
    """The stages of a run: T_s and T_u of every round, and the closing Sup out of the last T_u."""
    if settings.rounds < 1 or not unlabelled:
        return (Stage("sup", 1, 1.0),)
    stages = []
    for turn in range(1, settings.rounds + 1):
        unsup = 1.0 - settings.sup_share
        closing = settings.closing_share * unsup if turn == settings.rounds else 0.0
        stages += [Stage("sup", turn, settings.sup_share), Stage("unsup", turn, unsup - closing)]
        if closing > 0.0:
            stages.append(Stage("sup", turn, closing))
    return tuple(stage for stage in stages if stage.share > 0.0)


class ByTurns:
    """The network of such a learner, and what its two losses are made of."""

    def __init__(self, name: str, task: Task, settings: TurnSettings) -> None:
        problem = task.problem
        self.name = name
        self.task = task
        self.stages = sandwich(settings, len(task.unlabelled) > 0)
        sizes = tuple(block.stop - block.start for block in problem.blocks.values())
        hidden = (max(round(settings.width * problem.n_inputs), 1),) * settings.hidden_layers
        self.architecture = Architecture(problem.n_inputs, hidden, sizes, settings.output_bias)
        self.inputs = floored(np.concatenate([task.x, task.unlabelled]))
        self.outputs = OutputMap(floored(task.y), problem.lower, problem.upper, settings.repair)
        self._violation = feasibility(problem, settings.lambda_e, settings.lambda_i)


def loop(step: Callable[[Carry, Any], tuple[Carry, Any]]) -> Callable[[Carry, Any, Any], tuple[Carry, Any]]:
    """So many steps one after the other, and their mean loss."""

    def run(carry: Carry, steps: Any, data: Any) -> tuple[Carry, Any]:
        def body(_: Any, both: Any) -> Any:
            carry, value = step(both[0], data)
            return carry, both[1] + value

        carry, total = jax.lax.fori_loop(0, steps, body, (carry, jnp.float32(0.0)))
        return carry, total / steps

    return run


def picked(data: Any, batch: int, key: Any) -> tuple[Any, float]:
    """Some rows at random, and how many each of them stands for."""
    rows = len(data[0])
    if batch <= 0 or batch >= rows:
        return data, 1.0
    chosen = jax.random.randint(key, (batch,), 0, rows)
    return tuple(part[chosen] for part in data), rows / batch
