"""Layers: which part of a model the compute sets of a traced function are of, by their names."""

from __future__ import annotations

import re

from codelet.frontends.rules import RULES
from codelet.graphs.phases import without_phase

_NAMED_OTHERWISE = ("max_pool",)
"""Operations that rules add under another name than the primitive's, and that have a gradient as a whole."""


def _is_operation(part: str) -> bool:
    """Whether a part of a name is the scope of an operation that has others, or parts, within it."""
    name = re.sub(r"_\d+$", "", part)
    return name in RULES or name in _NAMED_OTHERWISE or name.endswith("_gradient")


def layer_of(name: str) -> str:
    """The layer that a compute set of a traced function is of, "" where it is of none.

    Its name is that of the layer, of an operation and of the purpose of the operation there.

    >>> layer_of("backward/convs/0/conv_general_dilated_2/convolve")
    'convs/0'
    >>> layer_of("backward/MaxPool2d/max_pool_3/max_pool_gradient/choose/choose")
    'MaxPool2d'
    """
    names = without_phase(name)
    operation = next((k for k, part in enumerate(names[:-1]) if _is_operation(part)), max(0, len(names) - 2))
    return "/".join(names[:operation])
