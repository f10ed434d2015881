"""Fusion model: pointwise operators inlined into consumers, and those that cannot be."""

from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import nn

from tinyckpt.interop.torch.check_purity import joint_of_module
from tinyckpt.interop.torch.fusing import MOST_OPERATORS
from tinyckpt.interop.torch.importer import Imported, graph_of

X = torch.randn(8, 4)


class Model(nn.Module):
    """A weight, and a function of it and an array."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


def imported(function: Any, fuses: bool = True) -> Imported:
    """Return the graph of a step of a function."""
    return graph_of(joint_of_module(Model(function), (X,)), "model", "flops", False, fuses)


def forward_kinds(function: Any) -> list[str]:
    """Return the operator kinds of the forward pass."""
    return [op.kind for op in imported(function).graph.operators if op.phase == "forward"]


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        # A product needs what it reads in memory; what is before that does not.
        (lambda x, w: ((x * 2 + 1).sin() @ w).sum(), ["sin", "mm", "sum"]),
        (lambda x, w: ((x @ w).sin() * 2).sum(), ["mm", "sum"]),
        (lambda x, w: ((x @ w).T.neg() + 1).sum(), ["mm", "sum"]),
        # The backward half reads the sine, and would have to compute it anew.
        (lambda x, w: ((x @ w).sin().exp() * 2).sum(), ["mm", "exp", "sum"]),
        (lambda x, w: (torch.full((), 2.0) + (x @ w)).sum(), ["mm", "sum"]),
        # What sums up is a kernel, and what it makes is in memory.
        (lambda x, w: ((x @ w).neg().sum(1, keepdim=True) + 1).sum(), ["mm", "sum", "sum"]),
    ],
)
def test_fused_intermediate_values_have_no_data_nodes(function: Any, kinds: list[str]) -> None:
    assert forward_kinds(function) == kinds


def test_small_value_with_several_consumers_is_fused_into_each() -> None:
    def function(x: Any, w: Any) -> Any:
        h = (x @ w).neg()
        return (h + 1).sum() + (h * 2).sum(0).sum()

    def large(x: Any, w: Any) -> Any:
        h = x @ w
        for _ in range(MOST_OPERATORS + 1):
            h = h.neg()
        return (h + 1).sum() + (h * 2).sum(0).sum()

    assert forward_kinds(function) == ["mm", "sum", "sum", "sum", "add"]
    assert forward_kinds(large) == ["mm", "neg", "sum", "sum", "sum", "add"]


def test_fused_operators_precede_their_consumers() -> None:
    found = imported(lambda x, w: ((x @ w).neg().T.exp() * 2).sum() + (x * 2 + 1).sin().sum())
    for node, within in found.fused.items():
        seen = set(found.fused) | set(found.joint.sources) | set(found.joint.tangents)
        for each in (*within, node):
            assert seen >= {n for n in each.all_input_nodes if n.name != node.name}
            seen.add(each)


def test_fused_operator_costs_sum_of_its_parts() -> None:
    def function(x: Any, w: Any) -> Any:
        return ((x @ w).sin() * 2).sum()

    plain, fused = imported(function, fuses=False).graph, imported(function).graph
    assert len(fused.operators) < len(plain.operators)
    assert sum(op.flops for op in fused.operators) == sum(op.flops for op in plain.operators)
