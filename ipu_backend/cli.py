"""The console script `codelet`: the jobs that come with the package."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence


def _version() -> str:
    try:
        return importlib.metadata.version("codelet")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return whole_number


def _mnist(arguments: argparse.Namespace) -> None:
    import json
    from dataclasses import asdict

    from ipu_backend.jobs.mnist import train

    print("784-128-10 with relu, on 4,000 real digits of MNIST; 1,000 are held out", flush=True)
    result = train(arguments.epochs, arguments.batch, arguments.seed)
    ours, plain = 1e3 * result.step_seconds, 1e3 * result.plain_jax_step_seconds
    print(f"graph of a batch of {arguments.batch}: {result.vertices:,} vertices, {result.edges:,} edges")
    print(f"held-out accuracy: {result.accuracy:.1%}")
    print(f"a training step: {ours:.3f} ms; in plain JAX: {plain:.3f} ms; ratio {ours / plain:.2f}")
    if arguments.json:
        print(json.dumps(asdict(result)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codelet", description="Graphs of millions of small differentiable programs, on JAX."
    )
    parser.add_argument("--version", action="version", version=f"codelet {_version()}")
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", dest="job")
    mnist = jobs.add_parser(
        "mnist",
        help="train a digit classifier made of vertices, on real MNIST",
        description=(
            "Train a fully connected network, built from one vertex for each dot product of 16 inputs, on "
            "real digits; test it on digits held out; time a step beside the same network in plain JAX. "
            "Needs the extra `demo`: pip install 'codelet[demo]'."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for option, least, default, meaning in (
        ("--epochs", 1, 40, "turns through the digits"),
        ("--batch", 1, 32, "digits in a step"),
        ("--seed", 0, 0, "of all that is random"),
    ):
        mnist.add_argument(option, type=_at_least(least), default=default, metavar="N", help=meaning)
    mnist.add_argument("--json", action="store_true", help="end with one line of JSON")
    mnist.set_defaults(run=_mnist)
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
