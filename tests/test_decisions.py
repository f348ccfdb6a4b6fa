"""What `print(run.plan)` says of how each family runs, and how each variable is read and written, and why."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from benchmarks import conv, ising, matvec, messages
from codelet.models.mnist import init_parameters, network
from lowering.fast.kernels import RULES


def zeros(*shape):
    return np.zeros(shape, np.float32)


def decisions(plan):
    """The lines of a plan that say what was decided, and of what."""
    rows = str(plan).split("\n")
    kept = (row for row in rows if re.match(r"execute|copy|without|repeat|\d+ calls| +(runs|not|reads|writes) ", row))
    return "\n".join(kept)


# --- the benchmarks -------------------------------------------------------------------------------------


def test_matvec():
    assert str(cl.lower(matvec.multiply).at(zeros(8, 36), zeros(36)).plan) == (
        "platform  cpu\n"
        "inputs  w, x\n"
        "execute add up reads w, x writes add up/out\n"
        "  add up / inner product: 8 vertices over row: 8\n"
        "    in    left: float32[32] = w at 36*row + f0\n"
        "    in    right: float32[32] = x at f0\n"
        "    out   out: float32[] = add up/out at row\n"
        "    made of 16 vertices over row: 8 x part: 2\n"
        "    made of 8 vertices over row: 8\n"
        "    runs under vmap over row\n"
        "      reads left: w, sliced\n"
        "      reads right: x, sliced\n"
        "  writes add up/out: all of it\n"
        "moved / touched in add up: 872 / 552 = 1.58\n"
        "outputs Tensor(float32[8] of add up/out: f0)"
    )


def test_conv():
    run = cl.lower(conv.convolve).at(zeros(2, 3, 8, 8), zeros(4, 3, 3, 3), stride=1, padding=1)
    assert decisions(run.plan) == (
        "execute convolve reads x, w writes convolve/out\n"
        "    runs as a convolution: windows of x move over row and column, w is the kernel\n"
        "      reads x: pad(x, 0.0) within its zeros, as it lies\n"
        "      reads w: w, as it lies\n"
        "  writes convolve/out: all of it"
    )


def test_messages():
    assert decisions(messages.lower_messages(messages.network(50, 10)).plan) == (
        "execute send reads h, weight writes sent\n"
        "    runs under vmap over e\n"
        "      reads h: h, gathered by a table\n"
        "      reads weight: weight, as it lies\n"
        "  writes sent: all of it\n"
        "execute receive reads sent writes y\n"
        "    runs all rows at once, by segments, elements in the order of memory\n"
        "      reads messages: sent, as it lies\n"
        "  writes y: all of it"
    )


def test_ising():
    flips = (
        "    runs under vmap over i, j; random numbers drawn ahead, on a CPU in blocks of {block} vertices\n"
        "      reads s: s, sliced\n"
        "      reads north: s, {north}\n"
        "      reads south: s, {south}\n"
        "      reads west: s, {west}\n"
        "      reads east: s, {east}\n"
        "      reads site: computed\n"
        "      reads seed: seed, as it lies\n"
    )

    def text(*beyond):
        """Of a family whose neighbours in these directions lie beyond an end of the torus."""
        names = ("north", "south", "west", "east")
        how = {name: "sliced, gathered by a table" if name in beyond else "sliced" for name in names}
        return flips.format(block="64 x 512", **how)

    assert decisions(ising.lower_sweep(1024).plan) == (
        "execute black reads s, seed writes s\n"
        + text("north", "west")
        + text("south", "east")
        + "  writes s: joined of 2 parts and what is left of it\n"
        "execute white reads s, seed writes s\n"
        + text("north", "east")
        + text("south", "west")
        + "  writes s: joined of 2 parts and what is left of it"
    )


def test_the_network_on_mnist():
    run = cl.lower(network).at(zeros(32, 784), init_parameters(jax.random.key(0)))
    assert decisions(run.plan) == (
        "execute layer 1/multiply reads x, layers/0/w writes layer 1/multiply/out\n"
        "    runs under vmap over image, row, part\n"
        "      reads x: x, as it lies\n"
        "      reads w: layers/0/w, as it lies\n"
        "  writes layer 1/multiply/out: all of it\n"
        "execute layer 1/add up reads layers/0/b, layer 1/multiply/out writes layer 1/add up/out\n"
        "    runs under vmap over image, row\n"
        "      reads partials: layer 1/multiply/out, as it lies\n"
        "      reads bias: layers/0/b, as it lies\n"
        "  writes layer 1/add up/out: all of it\n"
        "execute layer 1/activate reads layer 1/add up/out writes layer 1/activate/out\n"
        "    runs under vmap over image*row.0, image*row.1\n"
        "      reads x: layer 1/add up/out, as it lies\n"
        "  writes layer 1/activate/out: all of it\n"
        "execute layer 2/multiply reads layers/1/w, layer 1/activate/out writes layer 2/multiply/out\n"
        "    runs under vmap over image, row, part\n"
        "      reads x: layer 1/activate/out, as it lies\n"
        "      reads w: layers/1/w, as it lies\n"
        "  writes layer 2/multiply/out: all of it\n"
        "execute layer 2/add up reads layers/1/b, layer 2/multiply/out writes layer 2/add up/out\n"
        "    runs under vmap over image, row\n"
        "      reads partials: layer 2/multiply/out, as it lies\n"
        "      reads bias: layers/1/b, as it lies\n"
        "  writes layer 2/add up/out: all of it"
    )


# --- every rule, and why those before it were not taken -------------------------------------------------------


@cl.codelet
def total(x):
    return x.sum()


@cl.codelet
def weighted(x, w):
    return (x * w).sum()


@cl.codelet
def least(x):
    return jnp.sort(x)[0]


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def triple(x):
    return 3 * x


@cl.codelet
def over_length(x):
    return x.sum() / x.shape[0]


@cl.codelet
def noisy(x, number, key):
    return x + jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(key), number))


LINES = cl.table([0, 1, 2, 0, 3, 3], offsets=[0, 1, 3, 6])


def windows(codelet):
    def build(graph, x):
        i = cl.grid(30)
        return graph.add_vertex("out", codelet, x=x[i : i + 3])

    return build, [zeros(32)]


def kernels_that_move(graph, x, w):
    i = cl.grid(24)
    return graph.add_vertex("out", weighted, x=x[i : i + 3], w=w[i])


def rows(codelet):
    def build(graph, x):
        return graph.add_vertex("out", codelet, x=x[LINES[cl.grid(3)]])

    return build, [zeros(4)]


def two_kinds_of_rows(graph, x):
    i = cl.grid(3)
    other = cl.table([0, 1, 2], offsets=[0, 2, 2, 3])
    return graph.add_vertex("out", cl.codelet(lambda x, y: x.sum() + y.sum()), x=x[LINES[i]], y=x[other[i]])


def draws(graph, x, key):
    i = cl.grid(1 << 20)
    return graph.add_vertex("out", noisy, x=x[i], number=i, key=key)


NO_PRODUCT = "      not a convolution: its codelet is no inner product of two fields"

CHOSEN = {
    "windows reduced": (
        *windows(total),
        [
            "    runs under vmap over i, windows reduced a dimension at a time",
            NO_PRODUCT,
            "      reads x: x, as it lies, windows of 3 reduced by sum",
        ],
    ),
    "windows stacked": (
        *windows(least),
        [
            "    runs under vmap over i",
            NO_PRODUCT,
            "      not windows element by element: the codelet does more with its windows than pick, compute by element"
            " and reduce",
            "      reads x: x, 3 slices stacked",
        ],
    ),
    "a kernel that moves": (
        kernels_that_move,
        [zeros(32), zeros(24, 3)],
        [
            "    runs under vmap over i, windows element by element",
            "      not a convolution: x: w moves with it",
            "      reads x: x, sliced for each of 3 elements",
            "      reads w: w, as it lies",
        ],
    ),
    "rows": (
        *rows(total),
        ["    runs all rows at once, by segments", "      reads x: x, gathered by a table"],
    ),
    "rows that are sorted": (
        *rows(least),
        [
            "    runs rows of one length at once, once for each of 3 lengths",
            "      not segments: the codelet does something else at each length",
            "      reads x: x, gathered by a table",
        ],
    ),
    "rows of two kinds": (
        two_kinds_of_rows,
        [zeros(4)],
        [
            "    runs rows of one length at once, once for each of 3 lengths",
            "      not segments: its fields have rows of several lengths",
            "      reads x: x, gathered by a table",
            "      reads y: x, sliced",
        ],
    ),
    "random numbers": (
        draws,
        [zeros(1 << 20), np.zeros(2, np.uint32)],
        [
            "    runs under vmap over i; random numbers drawn ahead, on a CPU in blocks of 32768 vertices",
            "      reads x: x, as it lies",
            "      reads number: computed",
            "      reads key: key, as it lies",
        ],
    ),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_and_why(name):
    build, arguments, expected = CHOSEN[name]
    said = decisions(cl.lower(build).at(*arguments).plan).split("\n")
    assert said[1:-1] == expected


def test_rules_are_told_apart_by_name():
    assert list(RULES) == [
        "segments",
        "buckets",
        "a convolution",
        "windows reduced",
        "a pooling",
        "windows element by element",
        "vmap",
    ]


# --- reads and writes ---------------------------------------------------------------------------------------


class Square:
    """A compute set that doubles parts of `x` into parts of `y`, and what its plan says of them."""

    def __init__(self):
        self.graph = graph = cl.Graph()
        self.x, self.y = graph.add_variable("x", (8, 4)), graph.add_variable("y", (8, 4))
        self.step = graph.add_compute_set("step")

    def add(self, x, y, codelet=double):
        self.graph.add_vertex(self.step, codelet, x=x, out=y)

    def said(self):
        run = cl.lower(self.graph, inputs=["x", "y"], outputs=["y"])
        rows = decisions(run.plan).split("\n")
        return [row.split(": ", 1)[1] for row in rows if row.split()[0] in ("reads", "writes")]


def test_parts_of_a_variable_are_divided_and_joined():
    s = Square()
    i, j = cl.grid(3, 4)
    k, m = cl.grid(5, 4)
    s.add(s.x[i, j], s.y[i, j])
    s.add(s.x[k + 3, m], s.y[k + 3, m], triple)
    assert s.said() == [
        "x, part 1 of 2 along dimension 0, as it lies",
        "x, part 2 of 2 along dimension 0, as it lies",
        "joined of 2 parts",
    ]
    s = Square()
    s.add(s.x[i, j], s.y[i, j])
    s.add(s.x[i + 3, j], s.y[i + 3, j], triple)
    assert s.said()[-1] == "joined of 2 parts and what is left of it"
    s = Square()  # of one codelet they are one family
    s.add(s.x[i, j], s.y[i, j])
    s.add(s.x[k + 3, m], s.y[k + 3, m])
    assert s.said() == ["x, as it lies", "all of it"]


def test_writes_that_interleave_and_that_do_not():
    s = Square()
    i, j = cl.grid(4, 4)
    s.add(s.x[2 * i, j], s.y[2 * i, j])
    s.add(s.x[2 * i + 1, j], s.y[2 * i + 1, j], triple)
    assert s.said()[-1] == "joined of 2 parts"
    s = Square()  # of one codelet, every odd row goes on where an even one ends
    s.add(s.x[2 * i, j], s.y[2 * i, j])
    s.add(s.x[2 * i + 1, j], s.y[2 * i + 1, j])
    assert s.said() == ["x, as it lies", "all of it"]
    s = Square()
    s.add(s.x[2 * i, j], s.y[2 * i, j])
    assert s.said() == ["x, sliced", "a box of it, in place"]
    s = Square()
    k, m = cl.grid(2, 2)
    s.add(s.x[k, m], s.y[k, m])
    s.add(s.x[k + 3, m + 1], s.y[k + 3, m + 1])
    assert s.said()[-1] == "2 parts in turn: a box of it, in place"


def test_writes_that_are_scattered():
    s = Square()
    i, j = cl.grid(3, 4)
    s.add(s.x[i, j], s.y[cl.table([6, 1, 3])[i], j])
    assert s.said() == ["x, sliced", "scattered by a table along dimension 0"]
    s = Square()
    places = cl.table(np.array([[0, 5], [7, 2]]))
    k, m = cl.grid(2, 2)
    s.add(s.x[k, m], s.y.reshape(32)[places[k, m]])
    assert s.said()[-1] == "scattered by a table"


def test_neighbours_on_a_torus():
    s = Square()
    i, j = cl.grid(8, 4)
    s.add(s.x[(i + 1) % 8, j], s.y[7 - i, j])
    assert s.said() == ["x, extended to 8 x 4, as it lies", "all of it"]


def test_copies():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (3,))
    program = cl.Sequence(cl.Copy(x[::2], y), cl.Copy(y, x[1:4]))
    assert decisions(cl.lower(graph, program, inputs=[x], outputs=[x, y]).plan) == (
        "copy Tensor(float32[3] of x: 2*f0) -> Tensor(float32[3] of y: f0): reads x, sliced, writes y: all of it\n"
        "copy Tensor(float32[3] of y: f0) -> Tensor(float32[3] of x: 1 + f0): reads y, as it lies,"
        " writes x: a box of it, in place"
    )


def test_calls_in_a_row_are_one_loop():
    graph = cl.Graph()
    x, y, a, b = (graph.add_variable(name, (2,)) for name in "xyab")
    graph.add_vertex("step", cl.codelet(lambda a, b: a + b), a=a, b=b, out=a)
    adding = graph.add_function(graph.compute_sets[-1], [a, b], name="adding")
    rows = graph.add_variable("rows", (4, 2))
    program = cl.Sequence(
        *(cl.Call(adding, a=rows[k], b=x) for k in range(4)), cl.Copy(x, y), cl.Call(adding, a=y, b=x)
    )
    said = str(cl.lower(graph, program, inputs=[x, y, rows], outputs=[rows, y]).plan)
    assert (
        "4 calls of adding as one loop reads x, rows writes rows\n"
        "  shares b=Tensor(float32[2] of x: f0)\n"
        "  stacks a=Tensor(float32[4,2] of rows: 2*f0 + f1)\n"
    ) in said, said


def test_a_compute_set_that_runs_again_is_decided_once():
    s = Square()
    i, j = cl.grid(8, 4)
    s.add(s.x[i, j], s.y[i, j])
    (step,) = s.graph.compute_sets
    first, _, again = cl.lower(s.graph, [step, cl.Copy(s.y, s.x), step], inputs=["x"], outputs=["y"]).plan.steps
    assert first is again
