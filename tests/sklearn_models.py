"""Models of scikit-learn as ONNX files, by `skl2onnx`.

Neither is a dependency of the tests: the files, with inputs and what scikit-learn computes of them, are stored beside.
Where both are installed, `python -m tests.sklearn_models` writes them anew.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored_models"

MODELS = ("boosted_trees", "forest", "linear", "logistic", "perceptron", "two_classes")


def _models() -> Mapping[str, tuple[Any, int]]:
    """Each model, and on how many classes it is trained; 0 for numbers."""
    of = lambda name: importlib.import_module(f"sklearn.{name}")  # noqa: E731
    pipeline, scaler = of("pipeline").make_pipeline, of("preprocessing").StandardScaler
    logistic = of("linear_model").LogisticRegression
    return {
        "boosted_trees": (of("ensemble").GradientBoostingRegressor(n_estimators=5, random_state=0), 0),
        "forest": (of("ensemble").RandomForestClassifier(n_estimators=4, max_depth=3, random_state=0), 3),
        "linear": (pipeline(of("impute").SimpleImputer(), of("linear_model").Ridge()), 0),
        "logistic": (pipeline(scaler(), of("preprocessing").Normalizer(), logistic()), 3),
        "perceptron": (of("neural_network").MLPRegressor(hidden_layer_sizes=(6,), random_state=0, max_iter=20), 0),
        "two_classes": (of("ensemble").RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0), 2),
    }


def write(folder: Path) -> None:
    """Train and export every model: a file of ONNX, and beside it an input and what scikit-learn computes of it.

    Args:
        folder: where to.
    """
    to_onnx: Any = importlib.import_module("skl2onnx").to_onnx
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 5)).astype(np.float32)
    target = (x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)
    for name, (model, classes) in _models().items():
        y = np.digitize(target, np.quantile(target, np.arange(1, classes) / classes)) if classes else target
        model.fit(x, y)
        options = {"zipmap": False} if classes else {}
        path = folder / f"sklearn_{name}.onnx"
        path.write_bytes(to_onnx(model, x[:1], options=options, target_opset=20).SerializeToString())
        results = [model.predict(x[:9]), *([model.predict_proba(x[:9])] if classes else [])]
        np.savez(path.with_suffix(".npz"), x=x[:9], **{f"y{k}": item for k, item in enumerate(results)})


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
