"""Normalizing: the works of which norms are made, of whole rows by one codelet, or by sums that are added up.

In come a tensor, the axes along which its elements are normalized together, and those with separate scales; out come
statistics, results and slopes, as planned. Batch, layer and group norm differ in these axes alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import checked_grain
from codelet.ops.block_planning import add_up
from codelet.ops.blockwise import Work
from codelet.ops.norm_codelets import (
    cast,
    divide_moments,
    moments_of_rows,
    move_slopes,
    normalize,
    normalize_rows,
    slopes_of_rows,
    sum_moments,
    sum_scaled_slopes,
    sum_slopes,
)
from codelet.ops.pairs import Pair
from codelet.ops.partials import sums_dtype
from codelet.ops.rows import Rows
from codelet.views.tensor import Tensor


class Norm:
    """A tensor, the axes along which its elements are normalized together, and those with separate scales."""

    def __init__(
        self,
        operation: str,
        graph: Graph,
        axes: tuple[int, ...],
        scaled: tuple[int, ...],
        eps: float,
        grain: int | None,
        memory_fraction: float,
        x: Tensor,
        scales: dict[str, Tensor],
        **alike: Tensor,
    ):
        for name, tensor in scales.items():
            expected = tuple(x.shape[d] for d in scaled)
            if tensor.shape != expected:
                raise OperationError(
                    f"{name} of ops.{operation} does not fit what is normalized",
                    given=tensor,
                    expected=f"shape {expected}",
                )
        for name, tensor in alike.items():
            if (tensor.shape, tensor.dtype) != (x.shape, x.dtype):
                raise OperationError(
                    f"{name} of ops.{operation} is not like what was normalized", given=tensor, expected=f"like {x}"
                )
        if not x.size:
            raise OperationError(f"ops.{operation} is given nothing", given=x, expected="one element at least")
        self.graph, self.axes, self.scaled, self.eps = graph, axes, scaled, float(eps)
        self.dtype, self.sums = x.dtype, sums_dtype(x.dtype)
        self.count = math.prod(x.shape[d] for d in axes)
        others = [(tensor, scaled) for tensor in scales.values()]
        grain = checked_grain(operation, grain)
        # All groups of dimensions are told apart by both: what is normalized, and what is scaled.
        self.rows = Rows(
            graph, axes, x, *alike.values(), others=others, apart=scaled, grain=grain, memory_fraction=memory_fraction
        )
        beside = tuple(d for d in range(x.ndim) if d not in scaled)
        self.of_scales = Rows(
            graph, beside, x, *alike.values(), others=others, apart=axes, grain=grain, memory_fraction=memory_fraction
        )
        every = range(len(self.rows.groups))
        self.static = {"eps": self.eps, "spread": tuple(a for a in every if a not in self.rows.own_axes(scaled))}

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance of elements normalized together."""
        rows, one = self.rows, ("one", self.sums)
        fields: Any = {"x": ("all", x)}
        whole = rows.work("moments", moments_of_rows, fields, {"mean": one, "variance": one}, "whole")
        results: Any = {"total": one, "squares": one}
        sums = rows.work("sum moments", sum_moments, fields, results, "summed", add=add_up)
        (plan,) = rows.plans([sums])
        if rows.takes_whole(whole, [plan]):
            return rows.add(whole, rows.plan(whole), x=x)  # type: ignore[return-value]
        total, squares = rows.add(sums, plan, x=x)
        each = Rows(self.graph, (), total, squares, memory_fraction=1.0)
        own: Any = {"total": ("all", total), "squares": ("all", squares)}
        found: Any = {"mean": ("all", self.sums), "variance": ("all", self.sums)}
        last = each.work("moments", divide_moments, own, found, "kept", count=self.count)
        return each.add(last, each.plan(last), total=total, squares=squares)  # type: ignore[return-value]

    def normalized(self, **tensors: Tensor) -> Tensor:
        """Normalized by given statistics."""
        fields = {name: (self._kind(name), tensor) for name, tensor in tensors.items()}
        work = self.rows.work("normalize", normalize, fields, {"out": ("all", self.dtype)}, "kept", **self.static)
        return self.rows.add(work, self.rows.plan(work), **tensors)[0]

    def _kind(self, name: str) -> Any:
        if name in ("scale", "offset"):
            return self.scaled
        return "one" if name in ("mean", "variance", "products", "total") else "all"

    def normalized_rows(self, **tensors: Tensor) -> Tensor | None:
        """Normalized by their statistics, row by row; None where rows are better cut."""
        fields = {name: (self._kind(name), tensor) for name, tensor in tensors.items()}
        out: Any = {"out": ("all", self.dtype)}
        static = {**self.static, "partials": self.sums.name}
        whole = self.rows.work("normalize", normalize_rows, fields, out, "whole", **static)
        if not self._fits(whole, tensors["x"]):
            return None
        return self.rows.add(whole, self.rows.plan(whole), **tensors)[0]

    def _fits(self, whole: Work, x: Tensor) -> bool:
        """Whether rows are whole: where they are as many as tiles, or so short that sums of parts would cost more."""
        rows = self.rows
        one = ("one", self.sums)
        fields: Any = {"x": ("all", x)}
        results: Any = {"total": one, "squares": one}
        sums = rows.work("sum moments", sum_moments, fields, results, "summed", add=add_up)
        return rows.takes_whole(whole, rows.plans([sums, sums]))

    def slopes(self, cotangent: Tensor, x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes by scale and offset, as they are summed."""
        own = self.of_scales
        every = range(len(own.groups))
        stat = tuple(d for d in range(x.ndim) if d not in self.axes)
        fields: Any = {"cotangent": ("all", cotangent), "x": ("all", x)}
        fields |= {"mean": (stat, mean), "variance": (stat, variance)}
        results: Any = {"scale": ("one", self.sums), "offset": ("one", self.sums)}
        static = {"axes": tuple(a for a in every if a not in own.own_axes(stat)), "spread": own.row_axes}
        work = own.work(
            *("sum slopes", sum_slopes, fields, results, "summed"),
            add=add_up,
            partials=self.sums,
            **static,
            eps=self.eps,
        )
        return own.add(work, own.plan(work), cotangent=cotangent, x=x, mean=mean, variance=variance)  # type: ignore[return-value]

    def as_dtype(self, tensor: Tensor, dtype: np.dtype) -> Tensor:
        """A small tensor in another dtype."""
        if tensor.dtype == dtype:
            return tensor
        each = Rows(self.graph, (), tensor, memory_fraction=1.0)
        work = each.work("cast", cast, {"x": ("all", tensor)}, {"out": ("all", dtype)}, "kept")
        return each.add(work, each.plan(work), x=tensor)[0]

    def moved(self, codelets: Pair, **tensors: Tensor) -> Tensor:
        """The slopes by the elements, from sums of their rows."""
        fields = {name: (self._kind(name), tensor) for name, tensor in tensors.items()}
        static = {**self.static, "count": self.count}
        work = self.rows.work("move slopes", codelets, fields, {"out": ("all", self.dtype)}, "kept", **static)
        return self.rows.add(work, self.rows.plan(work), **tensors)[0]

    def slopes_by_rows(
        self, cotangent: Tensor, x: Tensor, scale: Tensor, statistics: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The slopes by the elements, and the statistics, where these are of rows; of given ones these."""
        rows, one = self.rows, ("one", self.sums)
        fields: Any = {"cotangent": ("all", cotangent), "x": ("all", x), "scale": (self.scaled, scale)}
        results: Any = {"out": ("all", self.dtype), "mean": one, "variance": one}
        static = {**self.static, "partials": self.sums.name}
        whole = rows.work("slopes", slopes_of_rows, fields, results, "whole", **static)
        if statistics is None and self._fits(whole, x):
            return rows.add(whole, rows.plan(whole), cotangent=cotangent, x=x, scale=scale)  # type: ignore[return-value]
        mean, variance = self.moments(x) if statistics is None else statistics
        given = {"cotangent": cotangent, "x": x, "mean": mean, "variance": variance, "scale": scale}
        fields = {name: (self._kind(name), tensor) for name, tensor in given.items()}
        sums: Any = {"products": one, "total": one}
        work = rows.work("sum scaled slopes", sum_scaled_slopes, fields, sums, "summed", add=add_up, **self.static)
        products, total = rows.add(work, rows.plan(work), **given)
        return self.moved(move_slopes, **given, products=products, total=total), mean, variance
