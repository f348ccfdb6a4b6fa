"""The console script `codelet`: the jobs that come with the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from codelet.version import VERSION


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return whole_number


def _mnist(arguments: argparse.Namespace) -> None:
    import json
    from contextlib import suppress
    from dataclasses import asdict

    import jax

    from ipu_backend.jobs.mnist import train

    devices = arguments.devices
    if devices > 1:
        with suppress(RuntimeError):  # JAX has begun: it has the devices that it has
            jax.config.update("jax_num_cpu_devices", devices)
    print("784-128-10 with relu, on 4,000 real digits of MNIST; 1,000 are held out", flush=True)
    result = train(arguments.epochs, arguments.batch, arguments.seed, adjoint=arguments.adjoint, devices=devices)
    ours, plain = 1e3 * result.step_seconds, 1e3 * result.plain_jax_step_seconds
    passes = ", forward and backward" if arguments.adjoint else ""
    over = f", over {devices} devices" if devices > 1 else ""
    print(f"graph of a batch of {arguments.batch}{passes}{over}: {result.vertices:,} vertices, {result.edges:,} edges")
    print(f"held-out accuracy: {result.accuracy:.1%}")
    print(f"a training step: {ours:.3f} ms; in plain JAX: {plain:.3f} ms; ratio {ours / plain:.2f}")
    if arguments.json:
        print(json.dumps(asdict(result)))


def _build(arguments: argparse.Namespace) -> None:
    import json

    from ipu_backend.jobs.build import build
    from ipu_backend.model.ipu import IPU

    target = IPU(arguments.chip) if arguments.tiles is None else IPU(arguments.chip, num_tiles=arguments.tiles)
    sizes = {"grain": arguments.grain, "batch": arguments.batch}
    result = build(arguments.name, **sizes, target=target, adjoint=arguments.adjoint)
    print(json.dumps(result.as_json()) if arguments.json else result)


def _draw(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.draw import draw_function

    chosen = ("size", "style", "colour", "palette", "highlight", "grain", "batch", "profile")
    options = {name: value for name in chosen if (value := getattr(arguments, name)) is not None}
    path = arguments.output or f"{arguments.name.replace(':', '.')}.png"
    print(f"{draw_function(arguments.name, path, **options)!r}: {path}")


def _report(arguments: argparse.Namespace) -> None:
    from ipu_backend.jobs.report import report_function

    path = arguments.output or f"{arguments.name.replace(':', '.')}.html"
    chosen = {name: getattr(arguments, name) for name in ("grain", "batch", "picture", "json")}
    print(f"{report_function(arguments.name, path, **chosen)!r}: {path}")


def _check(arguments: argparse.Namespace) -> None:
    import json

    from ipu_backend.jobs.check import check_function

    chosen = {name: getattr(arguments, name) for name in ("grain", "batch", "vertices")}
    found = check_function(arguments.name, **chosen)
    print(json.dumps(found.as_json()) if arguments.json else found)
    if not found:
        sys.exit(1)


def _take_counts(job: argparse.ArgumentParser, **meanings: str) -> None:
    """Options of a job that are whole numbers from 1, by name, with what each means."""
    for name, meaning in meanings.items():
        job.add_argument(f"--{name}", type=_at_least(1), metavar="N", help=meaning)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codelet", description="Graphs of millions of small differentiable programs, on JAX."
    )
    parser.add_argument("--version", action="version", version=f"codelet {VERSION}")
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", dest="job")
    mnist = jobs.add_parser(
        "mnist",
        help="train a digit classifier made of vertices, on real MNIST",
        description=(
            "Train a fully connected network, built from one vertex for each dot product of 16 inputs, on "
            "real digits; test it on digits held out; time a step beside the same network in plain JAX. "
            "Needs the extra `demo`: pip install 'codelet-graphs[demo]'."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for option, least, default, meaning in (
        ("--epochs", 1, 40, "turns through the digits"),
        ("--batch", 1, 32, "digits in a step"),
        ("--seed", 0, 0, "of all that is random"),
        ("--devices", 1, 1, "devices that the graph is cut over; a CPU is taken for as many"),
    ):
        mnist.add_argument(option, type=_at_least(least), default=default, metavar="N", help=meaning)
    mnist.add_argument(
        "--adjoint", action="store_true", help="make the gradient by vertices, too, and not by JAX of the forward pass"
    )
    mnist.add_argument("--json", action="store_true", help="end with one line of JSON")
    mnist.set_defaults(run=_mnist)
    build = jobs.add_parser(
        "build",
        help="trace a network's training step, or any function of JAX, into a graph, and say what it costs",
        description=(
            "Trace a function into a graph of vertices, lower it and profile it: its counts, the memory of the tiles, "
            "the cycles of every layer, forward and backward, and the time of every stage. Stages that take more than "
            "a second show on the standard error stream, with the extra `progress` as a bar."
        ),
    )
    build.add_argument(
        "name",
        metavar="NAME",
        help=(
            "alexnet, resnet18, resnet34, resnet50, strain or mnist: a training step of that network; or "
            "package.module:function, which is called without arguments (with batch=N where --batch is given) and "
            "returns a function of JAX and an example of each of its arguments"
        ),
    )
    _take_counts(
        build,
        grain="about how many elements or multiply-adds a vertex has (default: as the planners choose)",
        tiles="of the machine (default: all of the chip)",
        batch="inputs in a training step (default: 1)",
    )
    build.add_argument("--chip", choices=("mk1", "mk2", "bow"), default="mk2", help="which IPU (default: mk2)")
    build.add_argument(
        "--adjoint",
        action="store_true",
        help=(
            "trace the loss alone, and make its backward pass of the graph, by cl.gradient; of another function than a "
            "network's, that of its first result by its first argument"
        ),
    )
    build.add_argument("--json", action="store_true", help="print one line of JSON instead")
    build.set_defaults(run=_build)
    draw = jobs.add_parser(
        "draw",
        help="draw the graph of a network's training step, or of any function of JAX",
        description=(
            "Trace a function into a graph of vertices, and draw every vertex and every link between two. "
            "Needs the extra `draw`: pip install 'codelet-graphs[draw]'."
        ),
    )
    draw.add_argument("name", metavar="NAME", help="what is drawn, as `codelet build` takes it")
    draw.add_argument("-o", "--output", metavar="PATH", help="where to: .png, .webp, .jpg or .html (default: NAME.png)")
    _take_counts(
        draw,
        size="height and width in pixels, a multiple of 64 (default: 2048)",
        grain="as of `codelet build`",
        batch="as of `codelet build`",
    )
    draw.add_argument("--style", choices=("dark", "light"), help="the ground (default: dark); light for paper")
    draw.add_argument(
        "--colour", choices=("layer", "codelet", "tile", "cycles"), help="what colours say (default: layer)"
    )
    draw.add_argument("--palette", choices=("hue", "colour-blind"), help="which colours (default: hue)")
    draw.add_argument("--highlight", metavar="PATTERN", help="compute sets, such as 'conv2/*': all else is grey")
    draw.add_argument(
        "--profile",
        action="store_true",
        help="profile it first, so that the tiles of all vertices are known (--colour tile does so by itself)",
    )
    draw.set_defaults(run=_draw)
    report = jobs.add_parser(
        "report",
        help="what a network's training step, or any function of JAX, costs, as a page of HTML",
        description=(
            "Trace a function into a graph of vertices, place it on tiles, and write what it costs to one page that "
            "needs no server and no network. Needs the extra `report`: pip install 'codelet-graphs[report]'."
        ),
    )
    report.add_argument("name", metavar="NAME", help="what is profiled, as `codelet build` takes it")
    report.add_argument("-o", "--output", metavar="PATH", help="where to (default: NAME.html)")
    _take_counts(
        report,
        grain="about how many multiplications or elements a vertex has (default: planned for the tiles)",
        batch="how many examples a network takes (default: its own)",
    )
    report.add_argument(
        "--picture",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="draw the graph (default: if it is small)",
    )
    report.add_argument("--json", metavar="PATH", help="write all that the page shows there as well, as JSON")
    report.set_defaults(run=_report)
    check = jobs.add_parser(
        "check",
        help="whether what a network's training step, or any function of JAX, is lowered to is equal to it",
        description=(
            "Trace a function into a graph of vertices, lower it, and evaluate both at random points of a prime field: "
            "equal, different with a witness, or undecided with the reason. Exit status 1 where it is not equal."
        ),
    )
    check.add_argument("name", metavar="NAME", help="what is compared, as `codelet build` takes it")
    _take_counts(check, grain="as of `codelet build`", batch="as of `codelet build`")
    check.add_argument(
        "--vertices", action="store_true", help="compare the graph itself as well, one family of vertices at a time"
    )
    check.add_argument("--json", action="store_true", help="print one line of JSON instead")
    check.set_defaults(run=_check)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run a job named on the command line.

    Args:
        argv: the arguments; those of the process when left off.

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
            arguments.run(arguments)
        except CodeletError as error:
            sys.exit(f"codelet {arguments.job}: {error}")
