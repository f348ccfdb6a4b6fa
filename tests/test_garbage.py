"""How often garbage is looked for while a graph is traced and lowered, and afterwards."""

import gc
import threading

import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.garbage import collecting_seldom


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("own", [(0, 10, 10), (700, 10, 10), (50_000, 5, 5)])
def test_it_is_as_before_afterwards_and_never_more_often(own):
    gc.set_threshold(*own)
    with collecting_seldom():
        within = gc.get_threshold()
        with collecting_seldom():
            assert gc.get_threshold() == within
        assert gc.get_threshold() == within
    assert gc.get_threshold() == own
    assert (within != own) == (own[0] == 700)
    assert within[0] >= own[0]


def test_what_is_set_meanwhile_stays():
    with collecting_seldom():
        gc.set_threshold(900, 9, 9)
    assert gc.get_threshold() == (900, 9, 9)


@pytest.mark.slow
def test_threads_that_overlap_leave_it_as_it_was():
    gc.set_threshold(700, 10, 10)
    entered, left = threading.Event(), threading.Event()

    def other():
        with collecting_seldom():
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    with collecting_seldom():
        thread.start()
        assert entered.wait(10)
    assert gc.get_threshold() != (700, 10, 10)  # the other is still within
    left.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_tracing_and_lowering_look_seldom_and_leave_it_so():
    gc.set_threshold(700, 10, 10)
    seen = []

    def double(x):
        seen.append(gc.get_threshold())
        return 2 * x

    traced = cl.trace(double, jnp.ones(3))
    assert gc.get_threshold() == (700, 10, 10)
    assert traced.lowered.jaxpr.eqns
    assert gc.get_threshold() == (700, 10, 10)
    assert seen
    assert all(own[0] > 700 for own in seen)
    with pytest.raises(ZeroDivisionError):
        cl.trace(lambda x: x * (1 // 0), jnp.ones(3))
    assert gc.get_threshold() == (700, 10, 10)
