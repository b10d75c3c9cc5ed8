"""Rows of many clients in one batch: each gets its own, all of it, and waits for nobody's hard row."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import feasibly as fb
from feasibly.serve import asked, batching, shelf
from feasibly.serve.asked import TRIES, Answered, How
from feasibly.serve.batching import Batcher
from feasibly.serve.limits import Limits
from feasibly.serve.shelf import Served
from tests.proxies import switched, trained

NONE = np.zeros(0, dtype=np.int64)


class Gate:
    """Keeps the worker busy until it is let go, so that others gather behind it."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def attempt(self, x: np.ndarray, how: How, begin=None):
        return self.predict(x, how), NONE

    def predict(self, x: np.ndarray, how: How):
        self.entered.set()
        self.go.wait(30)
        return trained("toy")[0].predict(x, "mean")

    finish = predict


class Counting(Served):
    """A model that remembers the batches it was asked."""

    def __init__(self, proxy: fb.Proxy) -> None:
        super().__init__("counted", proxy)
        self.tried: list[int] = []
        self.again: list[int] = []
        """How many of each batch had been in one before."""
        self.long: list[int] = []

    def attempt(self, x: np.ndarray, how: How, begin=None):
        self.tried.append(len(x))
        self.again.append(0 if begin is None else int(np.isfinite(begin.y).all(axis=1).sum()))
        return super().attempt(x, how, begin)

    def finish(self, x: np.ndarray, how: How):
        self.long.append(len(x))
        return super().finish(x, how)


def together(model: Served, groups: list[np.ndarray], how: How) -> list[Answered]:
    """The answers to requests that wait at the same time."""
    batcher, gate = Batcher(Limits()), Gate()
    batcher.start()

    async def play() -> list[Answered]:
        deadline = time.perf_counter() + 60
        first = asyncio.create_task(batcher.ask(gate, how, np.zeros((1, 2)), deadline))
        await asyncio.to_thread(gate.entered.wait, 30)
        rest = [asyncio.create_task(batcher.ask(model, how, x, deadline)) for x in groups]
        await asyncio.sleep(0.05)
        gate.go.set()
        await first
        return await asyncio.gather(*rest)

    done = asyncio.run(play())
    batcher.stop()
    batcher.join(10)
    assert batcher.waiting == 0
    return done


def fresh(model: Counting) -> list[int]:
    """Rows of each batch that had not been in one before."""
    pairs = zip(model.tried, model.again, strict=True)
    return [rows - again for rows, again in pairs if rows > again]


def test_a_sentence_about_a_row_goes_to_whoever_asked_for_it() -> None:
    """An outage that splits the grid is told to the one who asked for it, by the number it has there."""
    proxy = switched()
    fine, split = np.array(proxy.problem.nominal), np.array(proxy.problem.nominal)
    split[proxy.problem.inputs["branch"]] = 0.0
    want = proxy.predict(split[None])
    assert want.warnings[0].startswith("row 0: ")
    model = Counting(proxy)
    groups = [np.stack([fine, fine]), np.stack([fine, split]), fine[None], np.stack([split] * 2)]
    done = [each.answer for each in together(model, groups, How())]
    assert model.tried == [7]
    assert [len(each.warnings) for each in done] == [0, 1, 0, 2]
    assert [line[:6] for each in done for line in each.warnings] == ["row 1:", "row 0:", "row 1:"]
    assert done[3].warnings[0] == want.warnings[0]


@pytest.mark.parametrize("answer", ["conditioned", "auto"])
def test_prices_are_those_of_ones_own_rows(answer: str) -> None:
    proxy = trained("grid3")[0]
    x = fb.sample(proxy.problem, 6, seed=3)
    how = How(answer=answer)
    done = [each.answer for each in together(Counting(proxy), [x[:1], x[1:3], x[3:]], how)]
    want = proxy.predict(x, answer, tolerance=how.tolerance)
    assert [each.prices.shape for each in done] == [(1, 3), (2, 3), (3, 3)]
    np.testing.assert_allclose(np.concatenate([each.prices for each in done]), want.prices, rtol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([each.duals.upper for each in done]), want.duals.upper, atol=1e-6
    )


def test_hard_rows_are_passed_on_and_come_back_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """grid6 has rows that no shared operator serves in a few steps: the other worker answers those, and those alone."""
    monkeypatch.setattr(asked, "TRIES", 1)
    proxy = trained("grid6")[0]
    generator = np.random.default_rng(0)
    x = proxy.problem.nominal * (1 + 0.2 * generator.uniform(-1, 1, (40, proxy.problem.n_inputs)))
    want = proxy.predict(x)
    hard = sum(level == "row" for level in want.level)
    assert 0 < hard < 10
    model = Counting(proxy)
    done = [each.answer for each in together(model, [x[:15], x[15:16], x[16:]], How())]
    # As many of several requests as are answered at once; one of its own is longer.
    assert fresh(model) == [16, 24]
    assert sum(model.long) >= hard
    assert sum(model.long) < 20
    assert [level for each in done for level in each.level].count("row") == hard
    assert all(each.ok.all() for each in done)
    # Two generators of one bus may share their reactive power as they like; costs and prices are the same.
    np.testing.assert_allclose(np.concatenate([each.objective for each in done]), want.objective, rtol=1e-6)
    np.testing.assert_allclose(np.concatenate([each.prices for each in done]), want.prices, rtol=1e-4)


def test_rows_that_need_more_steps_go_on_in_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps at a time instead of eight: nothing is begun again, nothing is left over, and answers are the same."""
    short = tuple(replace(level, steps=min(level.steps, 2)) for level in shelf.FEW_PART)
    monkeypatch.setattr(shelf, "FEW_PART", short)
    proxy = trained("grid3")[0]
    x = fb.sample(proxy.problem, 9, seed=4)
    want = proxy.predict(x)
    assert set(want.level) == {"shared"}
    model = Counting(proxy)
    done = [each.answer for each in together(model, [x[:1], x[1:5], x[5:]], How())]
    assert model.tried[0] == 9
    assert 0 < sum(model.again) < 9 * TRIES
    assert model.again[1:] == model.tried[1:]  # nobody else came meanwhile
    assert model.long == []
    assert [level for each in done for level in each.level] == ["shared"] * 9
    np.testing.assert_allclose(np.concatenate([each.y for each in done]), want.y, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([each.objective for each in done]), want.objective, rtol=1e-7)


@pytest.mark.parametrize(("clients", "batches"), [(1000, [16]), (3, [3, 13])])
def test_where_many_come_a_batch_waits_until_it_is_full(
    monkeypatch: pytest.MonkeyPatch, clients: int, batches: list[int]
) -> None:
    """Three have come while another was answered: they wait for more, unless all who could ask have asked."""
    monkeypatch.setattr(batching, "WAITING", 1e9)
    monkeypatch.setattr(batching, "LONGEST", 60.0)
    model, gate, batcher = Counting(trained("grid3")[0]), Gate(), Batcher(Limits())
    x = fb.sample(model.problem, 16, seed=4)
    batcher.clients = lambda: clients
    batcher.start()

    async def play() -> None:
        deadline = time.perf_counter() + 60

        def ask(rows: np.ndarray) -> list[asyncio.Task[Answered]]:
            return [asyncio.create_task(batcher.ask(model, How(), row[None], deadline)) for row in rows]

        first = asyncio.create_task(batcher.ask(gate, How(), np.zeros((1, 2)), deadline))
        await asyncio.to_thread(gate.entered.wait, 30)
        some = ask(x[:3])
        await asyncio.sleep(0.05)
        gate.go.set()
        await first
        if clients == 3:
            await asyncio.gather(*some)
        rest = ask(x[3:])
        if clients == 3:
            batcher.clients = lambda: 13
        await asyncio.gather(*some, *rest)

    asyncio.run(asyncio.wait_for(play(), 30))
    batcher.stop()
    batcher.join(10)
    assert fresh(model) == batches


def test_nobody_waits_behind_what_takes_long() -> None:
    """A quick request is answered while a long one is in hand."""
    batcher, gate = Batcher(Limits()), Gate()
    batcher.start()
    served = Served("toy", trained("toy")[0])

    async def play() -> None:
        deadline = time.perf_counter() + 60
        long = asyncio.create_task(batcher.ask(gate, How(answer="solved"), np.zeros((1, 2)), deadline))
        await asyncio.to_thread(gate.entered.wait, 30)
        quick = await batcher.ask(served, How(), np.zeros((1, 2)), deadline)
        assert quick.answer.ok.all()
        assert not long.done()
        batcher.stop()  # and what was taken is finished
        gate.go.set()
        await long

    asyncio.run(play())
    batcher.join(10)


def test_the_promise_is_about_the_rows_of_one_request() -> None:
    proxy, data = trained("toy")
    proxy.certificate = fb.certify(proxy, data, 0.8, answers=("conditioned", "auto"))
    try:
        x = fb.sample(proxy.problem, 3, seed=8)
        far = np.vstack([x[:1], x[:1] + 50.0])
        served = Served("toy", proxy)
        for answer in ("conditioned", "auto"):
            how = How(answer=answer, tolerance=1e-6)
            one, two = (each.answer for each in together(served, [x, far], how))
            assert one.warnings == ()
            assert served.promise(one, x, how).warnings == proxy.predict(x, answer).warnings == ()
            assert served.promise(two, far, how).warnings == proxy.predict(far, answer).warnings != ()
    finally:
        proxy.certificate = None
