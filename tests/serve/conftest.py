"""One running application over two small models, and what a client needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from feasibly.serve.app import build_app
from feasibly.serve.desk import Desk
from feasibly.serve.limits import Limits
from feasibly.serve.shelf import Shelf
from tests.proxies import trained


@pytest.fixture(scope="session")
def shelved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of a grid."""
    folder = tmp_path_factory.mktemp("models")
    proxy, _ = trained("grid3")
    proxy.save(folder / "grid3")
    return folder


def make_desk(shelf: Shelf, **limits: float) -> Desk:
    return Desk(shelf, Limits(**limits))


def wait_until_ready(client: TestClient) -> None:
    for _ in range(600):
        if client.get("/v2/health/ready").status_code == 200:
            return
        time.sleep(0.1)
    raise AssertionError("the server never got ready")


@pytest.fixture(scope="session")
def desk() -> Desk:
    """Two models: a grid, and a user's own problem. What the tests' own calls compile serves both."""
    models = {name: trained(name)[0] for name in ("grid3", "toy")}
    return make_desk(Shelf((), models, warm=(1,)), rows=64, body_bytes=200_000)


@pytest.fixture(scope="session")
def client(desk: Desk) -> Iterator[TestClient]:
    """Asks it."""
    app = build_app(desk, _raise)
    with TestClient(app, base_url="http://127.0.0.1:8000") as made:
        wait_until_ready(made)
        yield made


def _raise(error: Exception) -> None:
    raise error
