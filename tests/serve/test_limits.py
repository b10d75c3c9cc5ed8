"""Who may ask, how much, and when: refusals, and models that come and go."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import feasibly as fb
from feasibly.serve.app import build_app
from feasibly.serve.asked import How
from feasibly.serve.batching import Batcher
from feasibly.serve.desk import Desk
from feasibly.serve.guard import read_token
from feasibly.serve.limits import Limits
from feasibly.serve.refusal import Refused
from feasibly.serve.shelf import Shelf
from tests.proxies import trained
from tests.serve.conftest import make_desk, wait_until_ready


def test_other_names_and_sites_are_refused(client: TestClient) -> None:
    assert client.get("/models", headers={"host": "attacker.example"}).status_code == 421
    assert client.get("/models", headers={"host": "127.0.0.1:8000"}).status_code == 200
    assert client.get("/models", headers={"host": "localhost:9"}).status_code == 200
    assert client.get("/models", headers={"origin": "https://attacker.example"}).status_code == 403
    assert client.get("/models", headers={"origin": "null"}).status_code == 403
    assert client.get("/models", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    assert client.get("/models", headers=[("host", "a"), ("host", "localhost")]).status_code == 400


def test_names_and_sites_can_be_let_in(desk: Desk) -> None:
    app = build_app(desk, lambda error: None, hosts=["grid.example"], origins=["https://desk.example"])
    asker = TestClient(app, base_url="http://grid.example")  # not entered: the desk has a worker already
    assert asker.get("/models").status_code == 200
    assert asker.get("/models", headers={"origin": "https://desk.example"}).status_code == 200


def test_the_token_opens_everything_but_what_is_open(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("correct-horse-battery\n")
    token = read_token(tmp_path / "token")
    asker = TestClient(build_app(desk, lambda error: None, token=token), base_url="http://localhost")
    assert asker.get("/v2/health/live").status_code == 200
    for address in ("/models", "/metrics", "/v2/models/grid3"):
        assert asker.get(address).status_code == 401
        assert asker.get(address, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert asker.get(address, headers={"authorization": f"Bearer {token}"}).status_code == 200
    for bad in ("short", "two words in one line", ""):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(fb.FeasiblyError, match="token"):
            read_token(tmp_path / "token")
    with pytest.raises(fb.FeasiblyError, match="cannot be read"):
        read_token(tmp_path / "nothing")


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[int] = []

    def predict(self, x: np.ndarray, how: How):
        self.asked.append(len(x))
        self.go.wait(10)
        return trained("toy")[0].predict(x)

    def attempt(self, x: np.ndarray, how: How, begin=None):
        return self.predict(x, how), np.zeros(0, dtype=np.int64)

    finish = predict


async def _asked(batcher: Batcher, model: Slow, rows: int, seconds: float = 10.0):
    return await batcher.ask(model, How(), np.zeros((rows, 2)), time.perf_counter() + seconds)


def test_what_gathers_is_one_batch_and_what_is_too_much_is_429() -> None:
    batcher, model = Batcher(Limits(queued_rows=4, batch_rows=8)), Slow()
    batcher.start()

    async def play() -> None:
        first = asyncio.create_task(_asked(batcher, model, 1))
        while not model.asked:
            await asyncio.sleep(0.01)
        rest = [asyncio.create_task(_asked(batcher, model, 1)) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="waiting already") as refused:
            await _asked(batcher, model, 1)
        assert refused.value.status == 429
        assert refused.value.headers == {"retry-after": "1"}
        model.go.set()
        done = await asyncio.gather(first, *rest)
        assert all(len(each.answer) == 1 for each in done)

    asyncio.run(play())
    assert model.asked == [1, 4]
    batcher.stop()
    batcher.join(10)


def test_a_request_past_its_time_is_503_and_never_begun() -> None:
    batcher, model = Batcher(Limits(seconds=0.2)), Slow()
    batcher.start()

    async def play() -> None:
        first = asyncio.create_task(_asked(batcher, model, 1))
        while not model.asked:
            await asyncio.sleep(0.01)
        with pytest.raises(Refused) as refused:
            await _asked(batcher, model, 2, seconds=0.1)
        assert refused.value.status == 503
        model.go.set()
        await first

    asyncio.run(play())
    batcher.stop()
    batcher.join(10)
    assert model.asked == [1]


def test_stopping_finishes_what_was_taken_and_takes_no_more() -> None:
    batcher, model = Batcher(Limits()), Slow()
    batcher.start()

    async def play() -> None:
        taken = [asyncio.create_task(_asked(batcher, model, 1)) for _ in range(3)]
        while not model.asked:
            await asyncio.sleep(0.01)
        batcher.stop()
        with pytest.raises(Refused, match="stopping"):
            await _asked(batcher, model, 1)
        model.go.set()
        assert len(await asyncio.gather(*taken)) == 3

    asyncio.run(play())
    batcher.join(10)


class Picky:
    """Fails for one kind of row."""

    def predict(self, x: np.ndarray, how: How):
        time.sleep(0.05)
        if (x > 1).any():
            raise fb.FeasiblyError("no row above one")
        return trained("toy")[0].predict(x)

    def attempt(self, x: np.ndarray, how: How, begin=None):
        return self.predict(x, how), np.zeros(0, dtype=np.int64)

    finish = predict


def test_one_bad_request_costs_nobody_else_an_answer() -> None:
    batcher, model = Batcher(Limits()), Picky()
    batcher.start()

    async def play() -> list:
        asks = [
            batcher.ask(model, How(), np.full((1, 2), value), time.perf_counter() + 10)
            for value in (0.0, 0.0, 5.0, 0.0)
        ]
        return await asyncio.gather(*asks, return_exceptions=True)

    done = asyncio.run(play())
    assert [isinstance(each, Refused) for each in done] == [False, False, True, False]
    assert done[2].status == 422
    batcher.stop()
    batcher.join(10)


def test_models_come_and_go_from_named_folders_alone(shelved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    shutil.copytree(shelved / "grid3", folder / "first")
    shutil.copytree(shelved / "grid3", tmp_path / "elsewhere")
    desk = make_desk(Shelf([folder], warm=()))
    with TestClient(build_app(desk, lambda error: None), base_url="http://127.0.0.1") as client:
        wait_until_ready(client)
        states = client.post("/v2/repository/index").json()
        assert states == [{"name": "first", "state": "READY", "reason": ""}]
        assert client.post("/v2/repository/models/second/load").status_code == 404
        shutil.copytree(shelved / "grid3", folder / "second")
        (folder / "link").symlink_to(tmp_path / "elsewhere")
        assert client.post("/v2/repository/models/second/load").status_code == 200
        assert client.get("/v2/models/second/ready").status_code == 200
        for outside in ("elsewhere", "..%2Felsewhere", "link", ".."):
            assert client.post(f"/v2/repository/models/{outside}/load").status_code == 404, outside
        assert client.post("/v2/repository/models/first/unload").status_code == 200
        assert client.post("/v2/repository/models/first/unload").status_code == 404
        reply = client.post("/models/first/answer", json={})
        assert reply.status_code == 404
        assert "not loaded" in reply.json()["error"]
        (folder / "second" / "proxy.json").write_text("{}")
        assert client.post("/v2/repository/models/second/load").status_code == 422
        still = client.post("/models/second/answer", json={"answer": "mean"})
        assert still.status_code == 200  # the one before


def test_folders_that_cannot_be_served_are_named(shelved: Path, tmp_path: Path) -> None:
    with pytest.raises(fb.FeasiblyError, match="there is no folder"):
        Shelf([tmp_path / "nothing"])
    with pytest.raises(fb.FeasiblyError, match="holds none"):
        Shelf([tmp_path])
    with pytest.raises(fb.FeasiblyError, match="two models are called grid3"):
        Shelf([shelved, shelved / "grid3"])
    with pytest.raises(fb.FeasiblyError, match="no model to serve"):
        Shelf([])
    with pytest.raises(fb.FeasiblyError, match="rows must be"):
        Limits(rows=0)
