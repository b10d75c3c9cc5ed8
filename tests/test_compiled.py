"""What is compiled is kept for the next process: where, how much of it, and when not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from feasibly._compiled import VARIABLE, prune

PROGRAM = """
from feasibly._compiled import keep_compiled
import jax, jax.numpy as jnp
heard = []
jax.monitoring.register_event_listener(lambda name, **rest: heard.append(name))
kept = keep_compiled()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0) if kept else None
value = float(jax.jit(lambda x: jnp.sort(x * 3.0).sum())(jnp.arange(4.0)))
print(kept, value, *(heard.count("/jax/compilation_cache/cache_" + what) for what in ("hits", "misses")))
"""


def run(**settings):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("JAX_") and k != VARIABLE}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=clean | settings,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def entries(folder):
    return sorted(path for path in Path(folder).rglob("*-cache"))


def test_the_next_process_reads_what_was_compiled_and_survives_a_torn_file(tmp_path):
    kept, value, hits, misses = run(XDG_CACHE_HOME=str(tmp_path))
    found = entries(tmp_path)
    assert (hits, misses) == ("0", str(len(found)))
    assert Path(kept).parent == tmp_path / "feasibly" / "compiled"
    assert value == "18.0"
    assert found
    assert Path(kept).stat().st_mode & 0o077 == 0
    assert run(XDG_CACHE_HOME=str(tmp_path)) == [kept, value, misses, "0"]  # nothing is compiled again
    found[0].write_bytes(found[0].read_bytes()[:50])  # as another process that is still writing leaves it
    assert run(XDG_CACHE_HOME=str(tmp_path)) == [kept, value, str(len(found) - 1), "1"]


@pytest.mark.parametrize(
    "settings",
    [{VARIABLE: "off"}, {"JAX_ENABLE_COMPILATION_CACHE": "false"}, {"JAX_COMPILATION_CACHE_DIR": "own"}],
)
def test_whoever_has_decided_is_left_alone(tmp_path, settings):
    if "JAX_COMPILATION_CACHE_DIR" in settings:
        settings = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own")}
    assert run(XDG_CACHE_HOME=str(tmp_path), **settings)[:2] == ["None", "18.0"]
    assert not entries(tmp_path / "feasibly")


def test_a_folder_that_others_write_to_is_not_read(tmp_path):
    kept, *_ = run(**{VARIABLE: str(tmp_path / "mine")})
    Path(kept).chmod(0o777)
    assert run(**{VARIABLE: str(tmp_path / "mine")})[0] == "None"


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    for k in range(6):
        path = tmp_path / f"machine{k % 2}" / f"{k}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 1000)
        os.utime(path, (1000.0 + k, 1000.0 + k))
    prune(tmp_path, 2500)
    assert [path.name for path in sorted(tmp_path.rglob("*-cache"))] == ["4-cache", "5-cache"]
