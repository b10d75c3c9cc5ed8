"""Threads that compute: one at a time, in the precision they asked for, and never for ever."""

import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.precision import called_back, double, turn
from tests.proxies import trained, unseen

PATIENCE = 60.0
"""Seconds after which a thread counts as standing still."""


def _in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _precision():
    return jnp.asarray(np.ones(1)).dtype


def test_precision_is_local_to_the_block_and_to_the_thread():
    seen = []
    with double():
        assert _precision() == np.float64
        _in_thread(lambda: seen.append(_precision())).join(PATIENCE)
    assert seen == [np.float32] == [_precision()]


@pytest.mark.parametrize(("inside", "other"), [(double, turn), (turn, double), (double, double)])
def test_no_two_threads_are_inside_at_once(inside, other):
    came = threading.Event()

    def come():
        with other():
            came.set()

    with inside(), double():  # one thread may enter again
        thread = _in_thread(come)
        assert not came.wait(0.2)
    assert came.wait(PATIENCE)
    thread.join(PATIENCE)


def test_an_error_lets_the_next_thread_in():
    with pytest.raises(ZeroDivisionError), double():
        _ = 1 / 0
    came = threading.Event()

    def come():
        with double():
            came.set()

    _in_thread(come)
    assert came.wait(PATIENCE)
    assert not jax.config.jax_enable_x64


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_process_is_not_locked_out():
    held, leave = threading.Event(), threading.Event()

    def hold():
        with turn():
            held.set()
            leave.wait(PATIENCE)

    thread = _in_thread(hold)
    assert held.wait(PATIENCE)
    child = os.fork()
    if not child:  # nothing of pytest may run here
        os._exit(0 if turn().acquire(timeout=5) else 1)
    leave.set()
    thread.join(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_predict_at_once_answer_as_one_does():
    proxy, data = trained("grid3")
    x = unseen(proxy, data)[0]
    alone = proxy.predict(x)
    found = [None] * 3

    def ask(which):
        found[which] = [proxy.predict(x[:rows]).y for rows in (1, 3, 20, len(x)) * 3]

    threads = [_in_thread(lambda which=which: ask(which)) for which in range(len(found))]
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    for answers in found:
        for y in answers:
            np.testing.assert_allclose(y, alone.y[: len(y)], atol=1e-6)


def test_a_program_that_calls_back_does_not_wait_for_its_own_turn():
    """The callback runs in a thread of XLA's, while the one whose turn it is waits for the program."""

    def outside(x):
        with double():
            return np.asarray(x) + 1.0

    def program(x):
        return jax.pure_callback(called_back(outside), jax.ShapeDtypeStruct((), jnp.float64), x)

    with double():
        assert float(jax.jit(program)(jnp.asarray(2.0))) == 3.0
    done = threading.Thread(target=called_back(lambda: None))
    done.start()
    done.join()
    with double():  # and the turn is given back
        assert jnp.asarray(1.0).dtype == jnp.float64
