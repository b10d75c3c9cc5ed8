"""Beliefs that take long, and evaluations that do."""

import time

import numpy as np

import feasibly as fb
from feasibly.answer import ladder
from tests.proxies import trained, unseen


def test_a_belief_that_took_long_is_kept_for_the_next_answer(monkeypatch):
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 5)
    rung = ladder.Ladder(proxy.problem, proxy.model, lambda: proxy.ladder.driver, None)
    monkeypatch.setattr(ladder, "WORTH_KEEPING", -1.0)
    asked = []

    class Slow:
        def predict(self, x):
            asked.append(len(x))
            time.sleep(0.2)
            return proxy.model.predict(x)

    rung.model = Slow()
    first = rung.answer(x, "mean")
    first.std[:] = 0.0  # whoever writes to an answer does not change the next
    again = rung.answer(x, "mean")
    assert asked == [5]
    assert again.seconds > 0.2  # what it took then counts now
    assert np.array_equal(first.y, again.y)
    assert again.std.max() > 0.0
    assert rung.answer(x, "conditioned").seconds > 0.2
    assert asked == [5]
    rung.answer(x + 1e-9, "mean")  # other inputs, another belief
    rung.answer(x[:3], "conditioned")
    assert asked == [5, 5, 3]
    rung.forget()
    rung.answer(x[:3], "mean")
    assert asked == [5, 5, 3, 3]
    monkeypatch.setattr(ladder, "LARGEST_KEPT", 4)
    rung.answer(x, "mean")
    rung.answer(x, "mean")
    monkeypatch.setattr(ladder, "LARGEST_KEPT", 1e9)
    monkeypatch.setattr(ladder, "WORTH_KEEPING", 1e9)
    rung.answer(x, "mean")
    assert asked == [5, 5, 3, 3, 5, 5, 5]


def test_an_evaluation_is_repeated_unless_it_took_minutes(monkeypatch):
    proxy, data = trained("grid6")
    calls = []
    predict = type(proxy.model).predict
    monkeypatch.setattr(type(proxy.model), "predict", lambda self, x: calls.append(1) or predict(self, x))
    fb.evaluate_proxy(proxy, data, "mean")
    assert len(calls) == 2
    monkeypatch.setattr("feasibly.evaluation.LONG", 0.0)
    fb.evaluate_proxy(proxy, data, "mean")
    assert len(calls) == 3
