"""Warm before ready: what a batch needs is compiled when a model is opened, and nothing after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from feasibly.problem.sampling import sample
from feasibly.serve.asked import How
from feasibly.serve.shelf import Shelf


def test_no_batch_waits_for_a_compiler(shelved: Path) -> None:
    compiled: list[str] = []

    def listen(event: str, seconds: float, **more: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        served = Shelf([shelved]).open("grid3")  # read from its folder: nothing of it has been compiled here
        assert compiled
        assert not served.alone
        compiled.clear()
        x = sample(served.problem, 64, seed=2)
        for rows in (1, 2, 9, 16, 17, 40, 64):
            found, _ = served.attempt(x[:rows], How())
            assert len(found) == rows
            once = served.problem.worst(x[:1], found.y[:1])  # as for a batch that leaves one row
            assert len(once[0]) == 1
        assert compiled == []
        served.warm_alone()  # done beside the answers, once the model is in service
        assert served.alone
        compiled.clear()
        assert served.attempt(x[:1], How())[0].ok.all()
        assert compiled == []
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
