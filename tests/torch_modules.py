"""Modules of PyTorch as ONNX files, by its own exporter.

Torch is no dependency of the tests: the files, with inputs and what torch computes of them, are stored beside. Where it
is installed, `python -m tests.torch_modules` writes them anew.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FOLDER = Path(__file__).parent / "stored_models"

MODULES = ("lstm", "transformer_encoder_layer", "conv_batch_norm", "embedding_bag")


def _modules(torch: Any) -> Mapping[str, tuple[Any, Any]]:
    """Each module with an input for it."""
    nn = torch.nn

    class Lstm(nn.Module):
        """Two layers in both directions, then a dense one."""

        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0])

    class Bag(nn.Module):
        """Means of rows of a table, then a dense layer."""

        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(20, 6, mode="mean")
            self.head = nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.bag(x))

    convolutions = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    for norm in (convolutions[1], convolutions[4]):
        for values in (norm.running_mean, norm.bias.data):
            values.normal_()
        for values in (norm.running_var, norm.weight.data):
            values.uniform_(0.5, 2)
    return {
        "lstm": (Lstm(), torch.randn(2, 7, 5)),
        "transformer_encoder_layer": (
            nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0),
            torch.randn(2, 5, 16),
        ),
        "conv_batch_norm": (convolutions, torch.randn(2, 3, 17, 13)),
        "embedding_bag": (Bag(), torch.randint(0, 20, (4, 5))),
    }


_SCOPES = "pkg.torch.onnx.name_scopes"


def _without_paths(nodes: Any) -> None:
    """Drop what the exporter notes of files and lines, which differ between machines, and keep scopes."""
    for node in nodes:
        scopes = [item.value for item in node.metadata_props if item.key == _SCOPES]
        del node.metadata_props[:]
        node.metadata_props.extend(onnx.StringStringEntryProto(key=_SCOPES, value=value) for value in scopes)
        node.ClearField("doc_string")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _without_paths(attribute.g.node)


def write(folder: Path) -> None:
    """Export every module: a file of ONNX, and beside it an input and what torch computes of it.

    Args:
        folder: where to.
    """
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    for name, (module, x) in _modules(torch).items():
        module.eval()
        path = folder / f"torch_{name}.onnx"
        # The exporter's own rewriting would fold a normalization into the convolution before it.
        torch.onnx.export(module, (x,), path, dynamo=True, external_data=False, optimize=name != "conv_batch_norm")
        model = onnx.load(path)
        _without_paths(model.graph.node)
        del model.metadata_props[:]
        onnx.save(model, path)
        with torch.no_grad():
            np.savez(path.with_suffix(".npz"), x=x.numpy(), y=module(x).numpy())


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
