"""What jobs are given by name: a network's training step, or any function of JAX with examples of its arguments."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from codelet.errors import CodeletError
from codelet.frontends.labels import is_library
from codelet.models.networks import NETWORKS, step_arguments
from codelet.models.training import train_step

_FILES = (".onnx", ".mlir", ".stablehlo")
"""How the names of files end that hold models."""


class BuildError(CodeletError, ValueError):
    """Something that cannot be built, as it is no network and no function of JAX."""


@contextlib.contextmanager
def telling(problem: str, name: str) -> Iterator[None]:
    """What a user's code raises inside becomes an error of a few lines; errors of codelet's go through.

    Raises:
        BuildError: what was raised, and the user's line that did.
    """
    try:
        yield
    except CodeletError:
        raise
    except Exception as error:
        raise BuildError(problem, given=f"{name} raises {_told(error)}", fix=_where(error)) from error


def telling_of(name: str) -> contextlib.AbstractContextManager[None]:
    """`telling` of the trace of a function.

    Raises:
        BuildError: it raises something.
    """
    return telling("a function cannot be traced", name)


def _told(error: Exception) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"


def _where(error: Exception) -> str | None:
    """The line that raised an error, of files that no library brings; None where there is none."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"see {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    found = [own for own in frames if not is_library(own.filename) and "importlib" not in own.filename]
    return f"see {found[-1].filename}:{found[-1].lineno}: {found[-1].line}" if found else None


def _imported(name: str, module_name: str, attribute: str) -> Any:
    """What a module has of a name.

    Raises:
        BuildError: a module that cannot be imported, or has nothing of that name.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does; a console script looks beside itself alone
    expected = "a module that can be imported from here, and a function in it"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise BuildError(
            "there is no such function", given=f"{name}: {error}", expected=expected, fix=_where(error)
        ) from error
    except Exception as error:
        raise BuildError(
            "a module cannot be imported", given=f"{name}: {_told(error)}", expected=expected, fix=_where(error)
        ) from error
    if not hasattr(module, attribute):
        given = f"{name}: module {module_name!r} has no attribute {attribute!r}"
        raise BuildError("there is no such function", given=given, expected=expected)
    return getattr(module, attribute)


def _of_file(name: str, batch: int | None) -> tuple[Any, ...]:
    """A model of a file, with the types of its parameters and inputs; open first dimensions are the batch."""
    if name.endswith(".onnx"):
        model = importlib.import_module("codelet.onnx.onnx_model").load_batch(name, batch or 1)  # of an extra
        parameters = {own: jax.ShapeDtypeStruct(array.shape, array.dtype) for own, array in model.parameters.items()}
        return model, parameters, *model.inputs.values()
    try:
        module = importlib.import_module("codelet.stablehlo.module").load(Path(name).read_bytes())
    except OSError as error:
        raise BuildError("a file cannot be read", given=f"{name}: {error}", expected="a module of StableHLO") from error
    return module, *module.inputs


def find_function(name: str, batch: int | None = None) -> tuple[Any, ...]:
    """A function of JAX and examples of its arguments: of a network, of a file, or of a function that returns them.

    Args:
        name: of a network, whose training step it is; of a file of ONNX (`.onnx`) or StableHLO (`.mlir`); or
            `package.module:function`.
        batch: how many inputs a network's step takes, default: one; given on to the function of that name.

    Raises:
        BuildError: a name of neither, or a function that returns something else.

    >>> step, training, inputs, labels = find_function("strain", batch=4)
    >>> inputs.shape
    (4, 1024)
    """
    if name in NETWORKS:
        key = jax.random.key(0)
        return train_step, *eqx.filter_eval_shape(step_arguments, name, batch=batch or 1, key=key)
    if name.endswith(_FILES):
        return _of_file(name, batch)
    module_name, colon, attribute = name.partition(":")
    if not colon:
        expected = f"{', '.join(NETWORKS)}, a file ({', '.join(_FILES)}), or package.module:function"
        raise BuildError("there is no such network", given=name, expected=expected)
    if not module_name or not attribute.isidentifier():
        raise BuildError("there is no such function", given=name, expected="package.module:function")
    made = _imported(name, module_name, attribute)
    if not callable(made):
        raise BuildError(
            "what should be called is no function",
            given=f"{name} is {made!r:.80}",
            expected="a function without arguments, which returns a function of JAX and examples of its arguments",
        )
    own = {} if batch is None else {"batch": batch}
    try:
        inspect.signature(made).bind(**own)
    except TypeError as error:
        called = "batch=..." if own else "no arguments"
        raise BuildError(f"a function cannot be called with {called}", given=f"{name}: {error}") from error
    except ValueError:  # one of C, of which Python knows no parameters
        pass
    with telling("a function fails where it is called", name):
        found = made(**own)
    if not isinstance(found, tuple) or not found or not callable(found[0]):
        raise BuildError(
            "what should be traced is no function with examples of its arguments",
            given=f"{name} returns {type(found).__name__}: {found!r:.80}",
            expected="a tuple: the function, then an example of each argument",
            fix="return step, parameters, inputs",
        )
    return found
