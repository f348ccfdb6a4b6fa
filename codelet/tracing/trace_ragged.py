"""Trace ragged: a codelet whose fields have another length at every vertex, traced once where that is enough.

In come a codelet, the types of its fields, with symbols for lengths, and the lengths that occur. Out comes its trace
for all of them at once, and which of them are apart: lengths at which it does something else than the symbols say, as
after `if x.shape[0] == 1`. A length can only be apart where an answer about the symbols is wrong for it (`lengths.py`);
there, and at the shortest and the longest, the codelet is traced for the length and both traces are compared
(`alike.py`). So with many lengths few traces are made, and with few lengths all.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from codelet.errors import CodeletTraceError
from codelet.tracing.alike import alike
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.lengths import FEW, size_at
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.tracing.unchanged import check_unchanged


def _over_lengths(
    traces: Sequence[TracedCodelet], lengths: Sequence[Lengths], name: str, inputs: Mapping[str, FieldType]
) -> FieldType:
    """The type of an output, of which the type for each of some lengths is known.

    One dimension at most is as long as a row. Where several are of that size, it is the one that is so in an input.
    """
    kinds = [traced.outputs[name] for traced in traces]
    shape = []
    for size in kinds[-1].shape:
        symbols = [symbol for symbol, length in lengths[-1].items() if length == size]
        candidates = [size, *symbols] if len(lengths) > 1 else [*symbols, size]
        shape.append(candidates)
    alike_in = [kind.shape for kind in inputs.values()]
    ragged = lambda choice: sum(not isinstance(size, int) for size in choice)  # noqa: E731
    choices = [choice for choice in itertools.product(*shape) if ragged(choice) < 2]
    for choice in sorted(choices, key=lambda choice: choice not in alike_in):
        kind = kinds[-1]._replace(shape=choice)
        if all(kind.at(some) == own for some, own in zip(lengths, kinds, strict=True)):
            return kind
    raise CodeletTraceError(
        f"codelet {traces[0].name!r} returns a field {name!r} whose shape follows no length of its inputs",
        given=", ".join(str(kind) for kind in dict.fromkeys(kinds[:4])),
        expected="one shape, or the length of a ragged input",
    )


def _text(outputs: Mapping[str, FieldType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in outputs.items())


def _check_outputs(traced: TracedCodelet, own: TracedCodelet, some: Lengths) -> None:
    """Check that a codelet returns at some lengths the same as at the others."""
    known = {str(symbol): length for symbol, length in some.items()}
    expected = {
        name: kind._replace(shape=tuple(int(size_at(n, known)) for n in kind.shape))
        for name, kind in traced.outputs.items()
    }
    if expected != own.outputs:
        where = ", ".join(f"{symbol} = {length}" for symbol, length in some.items())
        raise CodeletTraceError(
            f"codelet {traced.name!r} returns other fields where the lengths of its ragged fields are {where}",
            given=f"{_text(own.outputs)} there, {_text(traced.outputs)} elsewhere",
            expected="the same names, shapes and dtypes at every length",
        )


def _apart(traced: TracedCodelet, least: int, lengths: Sequence[Lengths]) -> dict[tuple[int, ...], TracedCodelet]:
    """The lengths at which a codelet does something else than its trace for all of them, with its traces there."""
    assert traced.answers is not None
    known = [{str(symbol): length for symbol, length in some.items()} for some in lengths]
    found: dict[tuple[int, ...], TracedCodelet] = {}

    def differs(k: int) -> bool:
        own = traced.at(lengths[k])
        if alike(traced.jaxpr, known[k], own.jaxpr):
            return False
        _check_outputs(traced, own, lengths[k])
        found[tuple(lengths[k].values())] = own
        return True

    below = [k for k, own in enumerate(known) if min(own.values()) < least]
    asked = sorted({*below, *traced.answers.doubted(known)})
    unseen = [k for k in filter(differs, asked) if k not in below and traced.answers.hold_at(known[k])]
    if unseen:  # at an end that no answer tells apart, something was decided that nobody saw
        for k in set(range(len(known))).difference(asked):
            differs(k)
    return found


def _leasts(lengths: Sequence[Lengths]) -> list[int]:
    """The least value to assume for the symbol of the length, so that a codelet may trace for all such lengths.

    Of one kind of rows alone: with several kinds every combination of lengths is run by itself.
    """
    if len(lengths) <= FEW or len(lengths[0]) > 1:
        return [1]
    occurring = [n for some in lengths for n in some.values() if n > 0]
    places = itertools.takewhile(lambda k: k < len(occurring), (1 << k for k in itertools.count()))
    return [1, *(occurring[k] for k in places)]


def trace_ragged(
    codelet: Codelet, inputs: Mapping[str, FieldType], static: Mapping[str, Hashable], lengths: Sequence[Lengths]
) -> TracedCodelet:
    """A codelet for ragged fields: as one jaxpr for the lengths that it treats alike, the others separate.

    Args:
        codelet: the codelet to trace.
        inputs: the type of every input field.
        static: static values; those with defaults may be left out.
        lengths: all that occur together, the shortest first.

    Raises:
        CodeletTraceError: it does not trace for some lengths, or returns fields of other types for some.
    """
    for least in _leasts(lengths):
        try:
            traced = codelet.specialise(inputs, static, least)
        except CodeletTraceError:
            continue
        found = traced.told_apart(_apart(traced, least, lengths))
        check_unchanged(found, lengths=lengths)  # or else some lengths are traced with other values than others
        return found
    each = [codelet.specialise({name: kind.at(some) for name, kind in inputs.items()}, static) for some in lengths]
    outputs = {name: _over_lengths(each, lengths, name, inputs) for name in each[-1].outputs}
    apart = {tuple(some.values()): own for some, own in zip(lengths, each, strict=True)}
    found = replace(each[-1], inputs=dict(inputs), outputs=outputs, with_apart={}).told_apart(apart)
    check_unchanged(found, lengths=lengths)
    return found
