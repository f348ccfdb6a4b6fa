"""One graph that several threads build at once."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import codelet as cl


@cl.codelet
def double(a):
    return 2 * a


def together(*functions):
    """What functions return that each run in a thread of its own; what they raise is raised."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [call.result() for call in [pool.submit(function) for function in functions]]


def test_scopes_and_recordings_are_of_their_thread():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    barrier = threading.Barrier(2, timeout=20)

    def build(name, by_symbols):
        y = graph.add_variable(f"y {name}", (4,))
        with graph.scope(name):
            barrier.wait()
            with graph.record() as step:
                barrier.wait()
                for turn in range(2):
                    own = graph.add_compute_set(f"set {turn}")
                    barrier.wait()
                    for i in [cl.grid(4)] if by_symbols else range(4):
                        graph.add_vertex(own, double, a=x[i], out=y[i])
                    barrier.wait()
        return step

    steps = together(lambda: build("one", True), lambda: build("two", False))
    for name, step in zip(("one", "two"), steps, strict=True):
        assert [made.name for made in step.compute_sets] == [f"{name}/set 0", f"{name}/set 1"]
        values = {"x": np.arange(4, dtype=np.float32)}
        assert cl.interpret(graph, values=values, outputs=[f"y {name}"], program=step)[f"y {name}"].tolist() == [
            0,
            2,
            4,
            6,
        ]
    assert graph.add_variable("after", ()).name == "after"


def test_a_recording_binds_its_own_thread_alone():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    outside = graph.add_compute_set("outside")

    def add():
        for k in range(4):
            graph.add_vertex(outside, double, a=x[k], out=y[k])

    with graph.scope("mine"), graph.record():
        together(add)
        with pytest.raises(cl.ProgramError, match="made outside the recording"):
            add()
        held = copy.deepcopy(graph)
    assert graph.num_vertices == 4
    assert held.add_variable("z", ()).name == "z"


def test_names_and_elements_are_taken_once():
    graph = cl.Graph()
    x = graph.add_variable("x", (100,))
    barrier = threading.Barrier(4, timeout=20)

    def build():
        barrier.wait()
        made = [graph.add_vertex("set", double, a=x[cl.grid(2)]) for _ in range(50)]
        for k in range(100):
            graph.add_vertex("set", double, a=x[k], out=made[0][0])
        return made

    made = [tensor for tensors in together(*[build] * 4) for tensor in tensors]
    assert len({tensor.name for tensor in made}) == 200
    elements = np.concatenate([tensor.elements() for tensor in made])
    assert len(np.unique(elements)) == elements.size
    assert len(graph.compute_sets) == 1
    assert graph.num_vertices == sum(family.num_vertices for family in graph.families) == 800
