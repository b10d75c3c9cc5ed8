"""A real browser, where there is one: Debian's chromium driven by selenium."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from feasibly.serve.app import build_app
from feasibly.serve.connection import connections
from feasibly.serve.desk import Desk

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


@contextmanager
def running(desk: Desk, **more: Any) -> Iterator[str]:
    """The application on a free port of this machine, in a thread; gives its address."""
    troubles: list[Exception] = []
    app = build_app(desk, troubles.append, **more)
    http = connections(desk.limits.seconds)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, http=http, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    wait(lambda: troubles or not desk.not_ready(), 300)
    assert not troubles
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def browsing(profile: Path, width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A browser with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER or ""))
    try:
        yield driver
    finally:
        driver.quit()


def wait(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Until it is true; whatever it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} seconds")
