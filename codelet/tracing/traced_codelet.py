"""Traced codelets: a codelet for one combination of field types and static values, as a jaxpr with named fields."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jax.extend import core as jax_core

from codelet.errors import SavingError
from codelet.saving import Unchanging
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.lengths import Answers
from codelet.tracing.statics import Settings, restored

if TYPE_CHECKING:
    from codelet.tracing.codelets import Codelet


@dataclass(frozen=True, eq=False, repr=False)
class TracedCodelet(Unchanging):
    """A codelet for one combination of field types and static values.

    Attributes:
        codelet: the original codelet, as it was then.
        inputs: the types of its parameters, by name, in the order of the signature.
        static: the static values, by name.
        outputs: the types of its results, by name; a name that is also an input is an in-out field.
        jaxpr: from the inputs, in order, to the outputs, in order. Where fields are ragged, for all lengths at once
            but those it does not stand for; or for the longest, if it stands for none.
        variant: distinguishes it from other traces of the codelet for the same types.
        settings: the settings of JAX it was traced with.
        least: the least value of the first symbol for a length while it was traced.
        answers: of a trace for all lengths at once, the answers about them.
        apart: the lengths that occur, of all symbols together, each of which needs a separate trace.
        has_effects: whether it does anything else than to compute (`jax.debug.print`), at any length that occurs.
    """

    codelet: Codelet
    inputs: Mapping[str, FieldType]
    static: Mapping[str, Hashable]
    outputs: Mapping[str, FieldType]
    jaxpr: jax_core.ClosedJaxpr
    variant: Hashable = ()
    settings: Settings = ()
    least: int = 1
    answers: Answers | None = None
    apart: frozenset[tuple[int, ...]] = frozenset()
    has_effects: bool = False
    with_apart: dict[frozenset[tuple[int, ...]], TracedCodelet] = field(default_factory=dict, repr=False)
    """With other lengths apart, so that the same are one object."""

    @property
    def name(self) -> str:
        """The codelet's name."""
        return self.codelet.name

    @functools.cached_property
    def field_names(self) -> tuple[str, ...]:
        """All fields: inputs in order, then outputs that are not inputs."""
        return (*self.inputs, *(name for name in self.outputs if name not in self.inputs))

    @property
    def is_ragged(self) -> bool:
        """Whether it has ragged fields, so that it stands for many lengths."""
        return any(kind.is_ragged for kind in self.inputs.values())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_ragged:
            raise SavingError(
                f"the trace of codelet {self.name!r} cannot be pickled without the lengths of its ragged fields",
                given=", ".join(f"{name}: {kind}" for name, kind in self.inputs.items()),
                expected="the family of its vertices, or their graph",
            )
        return _traced_again, (self.codelet, dict(self.inputs), dict(self.static), self.settings)

    def at(self, lengths: Lengths) -> TracedCodelet:
        """The codelet traced for vertices whose ragged fields have these lengths.

        Raises:
            CodeletTraceError: it does not trace for them.
        """
        with restored(self.settings):
            return self.codelet.specialise({name: kind.at(lengths) for name, kind in self.inputs.items()}, self.static)

    def anew(self) -> TracedCodelet:
        """It traced once more, which nobody remembers: of its derivative rules none has run yet."""
        with restored(self.settings):
            return self.codelet.trace_fresh(self.inputs, self.static, self.least)

    def told_apart(self, traces: Mapping[tuple[int, ...], TracedCodelet]) -> TracedCodelet:
        """It with some lengths apart, given their traces."""
        apart = frozenset(traces)
        if apart == self.apart:
            return self
        if apart not in self.with_apart:
            speaks = self.has_effects or any(own.has_effects for own in traces.values())
            self.with_apart[apart] = replace(self, apart=apart, has_effects=speaks, with_apart={})
        return self.with_apart[apart]

    def call(self, *inputs: Any) -> dict[str, Any]:
        """Run the jaxpr on arrays, or on tracers, one for each input; outputs by name."""
        return dict(zip(self.outputs, jax_core.jaxpr_as_fun(self.jaxpr)(*inputs), strict=True))

    def __repr__(self) -> str:
        return f"<traced {self._signature}>"

    def __str__(self) -> str:
        return f"{self._signature}\n{self.jaxpr}"

    @property
    def _signature(self) -> str:
        fields = [f"{name}: {kind}" for name, kind in self.inputs.items()]
        fields += [f"{name}={value!r}" for name, value in self.static.items()]
        results = ", ".join(f"{name}: {kind}" for name, kind in self.outputs.items())
        return f"codelet {self.name}({', '.join(fields)}) -> {results}"


def _traced_again(
    codelet: Codelet, inputs: Mapping[str, FieldType], static: Mapping[str, Hashable], settings: Settings
) -> TracedCodelet:
    with restored(settings):
        return codelet.specialise(inputs, static)
