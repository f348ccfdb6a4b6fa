"""The console script `codelet`: the jobs that come with the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from codelet.version import VERSION


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return whole_number


def _put(arguments: argparse.Namespace, shown: object, as_json: Callable[[], Any]) -> None:
    """Print what a command found; as JSON where `--json` names no file, and to the file that it names."""
    import json

    if arguments.json == _STANDARD_OUTPUT:
        print(json.dumps(as_json()))
        return
    print(shown)
    if arguments.json is not None:
        from codelet.files import written_whole

        with written_whole(arguments.json) as file:
            json.dump(as_json(), file)


def _check_json(arguments: argparse.Namespace) -> None:
    """See that JSON can be written where it is to be, before anything that takes long."""
    if arguments.json not in (None, _STANDARD_OUTPUT):
        from codelet.files import check_writable

        check_writable(arguments.json)


def _built(arguments: argparse.Namespace, *more: str) -> dict[str, Any]:
    """What all commands that build a graph are told, and further options that were given."""
    from ipu_backend.model.ipu import IPU

    size = {} if arguments.tiles is None else {"num_tiles": arguments.tiles}
    found = {name: value for name in more if (value := getattr(arguments, name)) is not None}
    common = {name: getattr(arguments, name) for name in ("grain", "batch", "adjoint")}
    return {**common, "target": IPU(arguments.chip, **size), **found}


def _mnist(arguments: argparse.Namespace) -> None:
    from contextlib import suppress
    from dataclasses import asdict

    import jax

    from ipu_backend.jobs.mnist import train

    devices, batch = arguments.devices, arguments.batch or _MNIST_BATCH
    if devices > 1:
        with suppress(RuntimeError):  # JAX has begun: it has the devices that it has
            jax.config.update("jax_num_cpu_devices", devices)
    print("784-128-10 with relu, on 4,000 real digits of MNIST; 1,000 are held out", flush=True)
    result = train(arguments.epochs, batch, arguments.seed, adjoint=arguments.adjoint, devices=devices)
    ours, plain = 1e3 * result.step_seconds, 1e3 * result.plain_jax_step_seconds
    passes = ", forward and backward" if arguments.adjoint else ""
    over = f", over {devices} devices" if devices > 1 else ""
    print(f"graph of a batch of {batch}{passes}{over}: {result.vertices:,} vertices, {result.edges:,} edges")
    print(f"held-out accuracy: {result.accuracy:.1%}")
    step = f"a training step: {ours:.3f} ms; in plain JAX: {plain:.3f} ms; ratio {ours / plain:.2f}"
    if arguments.json == _STANDARD_OUTPUT:
        print(step)
    _put(arguments, step, lambda: asdict(result))


def _build(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.build import build

    result = build(arguments.name, **_built(arguments))
    _put(arguments, result, result.as_json)


def _stem(name: str) -> str:
    """What an output is called where no name is given for it."""
    return name.removesuffix(".codelet").replace(":", ".")


def _draw(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.draw import draw_function

    options = _built(arguments, "size", "style", "colour", "palette", "highlight", "profile")
    path = arguments.output or f"{_stem(arguments.name)}.png"
    drawn = draw_function(arguments.name, path, **options)
    _put(arguments, f"{drawn!r}: {path}", lambda: {"name": arguments.name, "path": path, "picture": repr(drawn)})


def _report(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.report import report_function

    path = arguments.output or f"{_stem(arguments.name)}.html"
    profile, record = report_function(arguments.name, path, **_built(arguments, "picture"))
    _put(arguments, f"{profile!r}: {path}", record.to_dict)


def _check(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.check import check_function

    found = check_function(arguments.name, **_built(arguments, "vertices"))
    _put(arguments, found, found.as_json)
    if not found:
        sys.exit(1)


def _run(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.file_jobs import run_file

    result = run_file(arguments.name, arguments.input, program=arguments.program, output=arguments.output)
    _put(arguments, result, result.as_json)


def _take_counts(job: argparse.ArgumentParser, **meanings: str) -> None:
    """Options of a job that are integers from 1, by name, with what each means."""
    for name, meaning in meanings.items():
        job.add_argument(f"--{name}", type=_at_least(1), metavar="N", help=meaning)


_STANDARD_OUTPUT = "-"
_MNIST_BATCH = 32


def _take_json(job: argparse.ArgumentParser) -> None:
    """The option of a job that writes JSON."""
    job.add_argument(
        "--json",
        nargs="?",
        const=_STANDARD_OUTPUT,
        metavar="PATH",
        help="write the results to a file, as JSON; without PATH print them as one line of JSON instead of the text",
    )


def _common() -> argparse.ArgumentParser:
    """The options that all commands have."""
    common = argparse.ArgumentParser(add_help=False)
    _take_counts(
        common, batch="number of inputs in a training step (default: 1, or that of your function; 32 for codelet mnist)"
    )
    common.add_argument(
        "--adjoint",
        action="store_true",
        help=(
            "add the backward pass to the graph by cl.gradient, rather than trace jax.grad; for your own function: the "
            "gradient of its first result with respect to its first argument"
        ),
    )
    _take_json(common)
    return common


def _of_graphs(common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The options of commands that build a graph of a function that is named."""
    graphs = argparse.ArgumentParser(add_help=False, parents=[common])
    graphs.add_argument(
        "name",
        metavar="NAME",
        help=(
            "a network (alexnet, resnet18, resnet34, resnet50, strain or mnist), for its training step; or a function, "
            "package.module:function, that is called without arguments (with batch=N where --batch is given) and "
            "returns (function, *example_arguments), as cl.trace takes them; draw and report also take a file of "
            "cl.save, model.codelet"
        ),
    )
    _take_counts(
        graphs,
        grain="elements, or multiply-adds, per vertex, about (default: chosen by the planner)",
        tiles="number of tiles of the machine (default: all of the chip)",
    )
    graphs.add_argument(
        "--chip", choices=("mk1", "mk2", "bow"), default="mk2", help="generation of the IPU (default: mk2)"
    )
    return graphs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codelet", description="Graphs of millions of small differentiable programs, on JAX."
    )
    parser.add_argument("--version", action="version", version=f"codelet {VERSION}")
    jobs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="job")
    common = _common()
    graphs = _of_graphs(common)
    mnist = jobs.add_parser(
        "mnist",
        parents=[common],
        help="train a digit classifier made of vertices, on real MNIST",
        description=(
            "Train a fully connected network, built from one vertex for each dot product of 16 inputs, on "
            "4,000 real digits; test it on 1,000 others; time a step beside the same network in plain JAX. "
            "Needs the extra `demo`: pip install 'codelet-graphs[demo]'."
        ),
    )
    for option, least, default, meaning in (
        ("--epochs", 1, 40, "number of passes through the digits"),
        ("--seed", 0, 0, "seed of all random numbers"),
        ("--devices", 1, 1, "number of devices in the mesh; on a CPU, creates as many host devices"),
    ):
        meaning = f"{meaning} (default: {default})"
        mnist.add_argument(option, type=_at_least(least), default=default, metavar="N", help=meaning)
    mnist.set_defaults(run=_mnist)
    build = jobs.add_parser(
        "build",
        parents=[graphs],
        help="trace a network's training step, or any JAX function, into a graph, and print its costs",
        description=(
            "Trace a function into a graph of vertices, lower it and profile it: its counts, the memory of the tiles, "
            "the cycles of every layer, forward and backward, and the time of every stage. Stages that take more than "
            "a second show on the standard error stream, with the extra `progress` as a bar."
        ),
    )
    build.set_defaults(run=_build)
    draw = jobs.add_parser(
        "draw",
        parents=[graphs],
        help="draw the graph of a network's training step, or of any JAX function",
        description=(
            "Trace a function into a graph of vertices, and draw every vertex and every link between two. "
            "Needs the extra `draw`: pip install 'codelet-graphs[draw]'."
        ),
    )
    draw.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="file to write: .png, .webp, .jpg, .html, or .svg for a diagram (default: NAME.png)",
    )
    _take_counts(draw, size="height and width in pixels, a multiple of 64 (default: 2048)")
    draw.add_argument("--style", choices=("dark", "light"), help="background (default: dark); light for paper")
    draw.add_argument(
        "--colour", choices=("layer", "codelet", "tile", "cycles"), help="property that colours show (default: layer)"
    )
    draw.add_argument("--palette", choices=("hue", "colour-blind"), help="set of colours (default: hue)")
    draw.add_argument(
        "--highlight",
        metavar="PATTERN",
        help="colour these compute sets alone, as 'conv2/*' (default: all)",
    )
    draw.add_argument(
        "--profile",
        action="store_true",
        help="profile it first, so that the tiles of all vertices are known (--colour tile does so by itself)",
    )
    draw.set_defaults(run=_draw)
    report = jobs.add_parser(
        "report",
        parents=[graphs],
        help="write the costs of a network's training step, or of any JAX function, as a page of HTML",
        description=(
            "Trace a function into a graph of vertices, place it on tiles, and write its costs to one page that "
            "needs no server and no network. Needs the extra `report`: pip install 'codelet-graphs[report]'."
        ),
    )
    report.add_argument("-o", "--output", metavar="PATH", help="file to write (default: NAME.html)")
    report.add_argument(
        "--picture",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="draw the graph (default: if it is small)",
    )
    report.set_defaults(run=_report)
    check = jobs.add_parser(
        "check",
        parents=[graphs],
        help="prove that a network's training step, or any JAX function, is equal to its lowered graph",
        description=(
            "Trace a function into a graph of vertices, lower it, and evaluate both at random points of a prime field: "
            "equal, different with a witness, or undecided with the reason. Exit status 1 where it is not equal."
        ),
    )
    check.add_argument(
        "--vertices", action="store_true", help="compare the graph itself as well, one family of vertices at a time"
    )
    check.set_defaults(run=_check)
    run = jobs.add_parser(
        "run",
        help="run a file that cl.save wrote",
        description=(
            "Read a file that cl.save wrote, run it once on arrays of .npy files, and print its results. Nothing of "
            "the file runs before its digests and bounds are checked."
        ),
    )
    run.add_argument("name", metavar="FILE", help="file to run, such as model.codelet")
    run.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="array of numpy.save for an argument, or for an engine's variable or stream; without NAME in order",
    )
    run.add_argument("--program", metavar="NAME", help="program to run, if an engine has several")
    run.add_argument("-o", "--output", metavar="PATH", help="write the results to a .npz file (default: print them)")
    _take_json(run)
    run.set_defaults(run=_run)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run a job named on the command line.

    Args:
        argv: the arguments; default: those of the process.

    Raises:
        SystemExit: with status 2 for arguments that make no job, 1 for a job that cannot be done.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.job is None:
        parser.print_help()
    else:
        from codelet.errors import CodeletError

        try:
            _check_json(arguments)
            arguments.run(arguments)
        except CodeletError as error:
            sys.exit(f"codelet {arguments.job}: {error}")
