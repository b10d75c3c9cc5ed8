"""Large batches on a device: the same answers as the driver's, whatever stays there and whatever runs out."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.answer import device, device_operator
from feasibly.answer.record import AnswerOutcome
from feasibly.answer.sparse_response import sparse_response
from feasibly.model.sparse import fit_sparse_response
from feasibly.precision import double
from tests.answer.test_sparse import sparse_driver
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
    assert found.outcome[2] is AnswerOutcome.INFEASIBLE
    assert np.isnan(found.y[2]).all()
    assert found.level[1] == found.level[2] == ""
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


def sparsely(name="grid6"):
    """A proxy whose operators are sparse factorisations, as those of large grids are, and rows it has not seen."""
    driver, labels = sparse_driver(name)
    proxy, data = trained(name)
    model = fit_sparse_response(sparse_response(driver.rowwise, driver.operator(0)), labels.x, labels.y)
    made = fb.Proxy(
        proxy.problem, model, proxy.record, keys=proxy.keys, calibration=driver.calibration, box=proxy.box
    )
    return made, unseen(proxy, data, 30)[0]


def test_sparse_factorisations_become_dense_on_a_device_and_answers_stay(monkeypatch):
    proxy, x = sparsely()
    plain = proxy.predict(x, "conditioned")
    monkeypatch.setattr("feasibly.answer.ladder.serves", lambda driver: True)
    there = proxy.ladder.answer_on_device(x)
    assert proxy.ladder._program is not None
    shared = np.array([a == b == "shared" for a, b in zip(plain.level, there.level, strict=True)])
    assert shared.mean() > 0.5  # slow rows are given more steps on the processor
    assert len(proxy.ladder._program._driver.calibration.candidates) <= len(proxy.calibration.candidates)
    np.testing.assert_allclose(there.objective[shared], plain.objective[shared], rtol=1e-6)
    np.testing.assert_allclose(there.y[shared], plain.y[shared], atol=1e-4)
    assert there.max_equality[shared].max() < 1e-6


def test_a_trace_of_a_multiplier_is_no_reason_to_watch_a_bound():
    """An interior-point method leaves one at every bound; what presses has a larger one than room."""
    driver, labels = sparse_driver("grid6")
    model = fit_sparse_response(sparse_response(driver.rowwise, driver.operator(0)), labels.x, labels.y)
    c = driver.calibration
    traces = tuple(centre._replace(lam=np.maximum(centre.lam, 1e-9)) for centre in c.centres)
    box = c.centres[0].x, c.centres[0].x
    usual = device_operator.narrowed(driver, model, box).calibration.candidates
    found = device_operator.narrowed(
        driver.having(replace(c, centres=traces)), model, box
    ).calibration.candidates
    assert len(usual) < len(c.candidates)
    for part in ("lower", "upper", "inequality"):
        assert getattr(found, part).tolist() == getattr(usual, part).tolist()


def test_sparse_factorisations_stay_sparse_on_the_processor():
    proxy, x = sparsely()
    with double():
        found = proxy.predict(jnp.asarray(x))
    assert proxy.ladder._program is None
    again = proxy.predict(x)  # knows where active sets may differ, and goes another way to the same end
    np.testing.assert_allclose(found.objective, again.objective, rtol=1e-9)
    np.testing.assert_allclose(found.y, again.y, atol=2e-5)
    assert not device.operators_fit(proxy.ladder.driver, 1e3)
    assert device.operators_fit(proxy.ladder.driver, 1e9)


def test_answers_of_several_batches_land_in_their_places(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 20)
    whole = proxy.ladder.answer_on_device(x)
    monkeypatch.setattr(device._Landing, "wanted", lambda shape: True)
    monkeypatch.setattr(device, "PIECE", 256)
    monkeypatch.setattr(device.DeviceProgram, "rows_at_once", 8)
    parts = proxy.ladder.answer_on_device(x)
    assert isinstance(parts.y, np.ndarray)
    np.testing.assert_allclose(parts.y, whole.y, atol=1e-6)
    assert parts.outcome == whole.outcome


def test_products_keep_their_digits_or_are_not_used():
    assert device_operator.precise("highest")
    assert not device_operator.precise("a way that no device knows")
    assert device_operator._large.__wrapped__() == "highest"
