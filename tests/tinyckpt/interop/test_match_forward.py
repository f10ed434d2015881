"""Vjp matching by autograd's sequence numbers: each backward operator's forward operator."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples, require

require("torch")

import torch
from torch import nn

from tinyckpt.interop import torch as tct


def halved(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        total = h.exp().sum()
    return h / total


def written_through_a_view(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = h.clone()
    view, other = made.view(2, 2, 2), (x * 2).exp()
    view[:, 0].copy_(other.view(2, 2, 2)[:, 0] * h.view(2, 2, 2)[:, 1])
    return made


def written_into_zeros(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(2, 4)
    made[:, 1:3] = h[:, 1:3]
    return made + (x * 2).cos()


def in_place(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = h.clone()
    made.view(-1)[2:].add_(x.view(-1)[2:])
    return made


def swapped(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    left, right = h.chunk(2, 1)
    return torch.cat([right.tanh(), left], 1)


def reshaped(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return h.expand(2, 4).reshape(4, 2).t().reshape(2, 4).double().float() * (x * 7).exp()


def differentiated(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    (slope,) = torch.autograd.grad(h.sin().sum(), h, create_graph=True)
    return slope * h


PIECES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "fan-out": lambda h, x: h.sin() + h.cos() * h,
    "a mask": lambda h, x: torch.where(h > 0, h, -h) * torch.arange(4.0).cos(),
    "detached": lambda h, x: h.detach().sin() * h,
    "dead": lambda h, x: (h.exp(), h.tanh())[1],
    "no gradient": halved,
    "a view that is written to": written_through_a_view,
    "zeros that are written to": written_into_zeros,
    "in place": in_place,
    "two results": swapped,
    "views": reshaped,
    "a gradient in the forward half": differentiated,
}


class Drawn(nn.Module):
    """A linear layer followed by randomly chosen pieces."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.layer, self.names = nn.Linear(4, 4), names

    def forward(self, x: torch.Tensor) -> Any:
        h = first = self.layer(x)
        for name in self.names:
            h = PIECES[name](h, x)
        return h.mean() + first.mean()


def check_adjoints(graph: tc.TrainingGraph) -> None:
    """Assert that each vjp reads cotangents that the vjps of its consumers make."""
    flows = {data.id for data in graph.data if data.role == "parameter"}
    before: dict[int, set[int]] = {}
    adjoint: dict[int, int | None] = {}
    for operator in graph.operators:
        made = set(operator.outputs)
        if operator.phase == "forward":
            if flows.intersection(operator.inputs):
                flows |= made
            makers = {graph.data[data].producer for data in operator.inputs} - {None}
            before[operator.id] = {operator.id}.union(*(before[maker] for maker in makers))
            continue
        own = operator.adjoint_of
        adjoint |= dict.fromkeys(made, own)
        if own is not None:
            assert flows.intersection(graph.operators[own].outputs), operator.name
            later = {adjoint[data] for data in operator.inputs if adjoint.get(data) is not None}
            assert all(own in before[other] for other in later), operator.name


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PIECES)
def test_vjps_read_cotangents_of_their_forward_consumers(name: str) -> None:
    graph = tct.trace(Drawn([name]), torch.ones(2, 4), workspace=False).graph
    check_adjoints(graph)
    kinds = {graph.operators[o.adjoint_of].kind for o in graph.operators if o.adjoint_of}
    assert {"addmm", "mean"} <= kinds


@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from(list(PIECES)), min_size=2, max_size=6))
def test_vjps_read_cotangents_of_consumers_in_random_models(names: list[str]) -> None:
    check_adjoints(tct.trace(Drawn(names), torch.ones(2, 4), workspace=False).graph)


def test_gradient_accumulation_is_vjp_of_no_operator() -> None:
    graph = tct.trace(Drawn(["fan-out"]), torch.ones(2, 4), workspace=False).graph
    sums = [o for o in graph.operators if o.phase == "backward" and o.kind == "add"]
    assert [o.adjoint_of for o in sums] == [None] * 3
