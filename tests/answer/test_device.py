"""Large batches on a device: the same answers as the driver's, whatever stays there and whatever runs out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.answer import device
from feasibly.answer.record import AnswerOutcome
from feasibly.precision import double
from tests.proxies import trained, unseen


@pytest.mark.parametrize(("name", "method"), [("grid6", "ridge"), ("grid6", "response"), ("toy", "gp")])
def test_answers_on_a_device_are_those_of_the_driver(name, method):
    proxy, data = trained(name, method)
    x, best, _ = unseen(proxy, data, 40)
    plain, there = proxy.predict(x, "conditioned"), proxy.ladder.answer_on_device(x)
    assert isinstance(there.y, np.ndarray)
    assert there.outcome == plain.outcome
    good = there.ok
    assert good.mean() > 0.9
    assert np.maximum(there.max_equality, there.max_inequality)[good].max() < 1e-6
    assert np.allclose(there.objective[good], best[good], rtol=1e-6)
    assert np.allclose(there.objective, proxy.problem.objectives(x, there.y), rtol=1e-12)


def test_what_is_handed_over_on_a_device_stays_there():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 8)
    with double():
        given = jnp.asarray(x)
    found = proxy.predict(given)
    assert isinstance(found.y, jax.Array)
    assert found.y.dtype == np.float64
    # Two generators at one bus may share what they give in any way at the same cost.
    assert np.allclose(found.objective, proxy.predict(x).objective, rtol=1e-6)


def test_rows_that_cannot_be_answered_are_named_there_too():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 6)
    spoilt = np.array(x)
    spoilt[1, 0] = np.nan
    spoilt[2] *= 5.0
    found = proxy.ladder.answer_on_device(spoilt)
    assert found.outcome[1] is AnswerOutcome.NOT_FINITE_INPUT
    assert np.isnan(found.y[1]).all()
    assert found.outcome[2] in (AnswerOutcome.VIOLATED, AnswerOutcome.OUTSIDE)
    assert found.ok[[0, 3, 4, 5]].all()


@pytest.mark.parametrize("fits", [1024, 0])
def test_a_device_without_memory_gets_smaller_batches_or_none(fits, monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 12)
    asked = []

    def chosen(program, problem, rows):
        return answer(Watched(program), problem, rows)

    class Watched:
        def __init__(self, program):
            self.program, self.width = program, 0

        @property
        def rows_at_once(self):
            self.width = 2048
            return 2048

        def run(self, rows):
            asked.append(len(rows))
            if len(asked) <= (1 if fits else 9):
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
            return self.program.run(rows)

    answer = device.on_device
    monkeypatch.setattr("feasibly.answer.ladder.on_device", chosen)
    found = proxy.ladder.answer_on_device(x)
    assert found.ok.all()
    assert "memory" in found.warnings[0]
    assert ("cut to 1,024 rows" in found.warnings[0]) == bool(fits)
