"""Memory savings of checkpointing: parameter counts, and four claims about training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import tinyckpt as tc
from lessons.figures.figure import gib, percent, rows
from tinyckpt.networks import (
    Network,
    bert,
    cnn100,
    gpt2,
    lenet5,
    llama,
    mobilenet_v1,
    resnet,
    vgg,
    vit,
)

PARAMETERS: dict[str, tuple[Callable[[], Network], int]] = {
    "LeNet-5": (lenet5, 61_706),
    "CNN of 100 layers": (cnn100, 92_208_120),
    "VGG-16": (lambda: vgg(16), 138_357_544),
    "VGG-19": (lambda: vgg(19), 143_667_240),
    "ResNet-18": (lambda: resnet(18), 11_689_512),
    "ResNet-50": (lambda: resnet(50), 25_557_032),
    "ResNet-152": (lambda: resnet(152), 60_192_808),
    "MobileNet": (mobilenet_v1, 4_231_976),
    "ViT-B/16": (vit, 86_567_656),
    "BERT-base": (bert, 109_482_240),
    "GPT-2 124M": (gpt2, 124_439_808),
    "GPT-2 774M": (lambda: gpt2(36, 1280), 774_030_080),
    "LLaMA-7B": (llama, 6_738_415_616),
}


MOST = 32  # images or sequences, at which each claim is confirmed


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed saving of sqrt(n) checkpointing in training, as a share of memory.

    Attributes:
        share: the claimed saving.
        make: the network, by its batch.
    """

    share: float
    make: Callable[[int], Network]


CLAIMS = {
    "ResNet-152": Claim(0.57, lambda batch: resnet(152, batch)),
    "ViT-B/16": Claim(0.54, lambda batch: vit(batch=batch)),
    "GPT-2 774M": Claim(0.58, lambda batch: gpt2(36, 1280, batch=batch)),
    "LLaMA-7B": Claim(0.57, lambda batch: llama(batch=batch)),
}


def counts() -> str:
    """Return the table of parameters."""
    body = []
    for name, (make, published) in PARAMETERS.items():
        count = make().parameter_count
        body.append([name, f"{published:,}", f"{count:,}", "yes" if count == published else "no"])
    return rows(("network", "published", "counted", "equal?"), body)


def block_of(scope: str) -> str:
    """Return the block that a scope belongs to: a layer, with its attention and perceptron."""
    return "/".join(part for part in scope.split("/") if part not in ("attention", "mlp"))


def per_block(graph: tc.TrainingGraph) -> tc.Schedule:
    """Return the schedule that keeps the values between blocks and recomputes each block once."""

    def handed_on(node: tc.DataNode) -> bool:
        own = block_of(graph.operators[node.producer or 0].scope)
        readers = [r for r in graph.consumers[node.id] if r < graph.forward_count]
        return any(block_of(graph.operators[reader].scope) != own for reader in readers)

    return tc.plan(graph, "retain", keep=handed_on)


def training_graph(network: Network) -> tc.TrainingGraph:
    """Return the graph of a step with Adam that consumes each gradient once computed."""
    step = tc.train_step(network.loss, tc.adam(1e-4))
    return step.graph(step.init(network.specs[0]), *network.specs[1:])


def flops_of(schedule: tc.Schedule) -> int:
    """Return the FLOPs of a schedule."""
    operators = schedule.graph.operators
    return sum(operators[s.operator].flops for s in schedule.steps if isinstance(s, tc.Compute))


def rows_of(name: str, batch: int) -> list[list[str]]:
    """Return the rows of a network at a batch: three plans compared with store-all."""
    claim = CLAIMS[name]
    graph = training_graph(claim.make(batch))
    stored = tc.plan(graph, "store_all")
    base = tc.ledger(stored)
    plans = {
        "√n": tc.plan(graph, "sqrt_n"),
        "block by block": per_block(graph),
        f"budget of {percent(1 - claim.share, 0)}": tc.plan(
            graph, "greedy", budget=1 - claim.share, costs=tc.cost.flops(graph)
        ),
    }
    found = []
    for what, schedule in plans.items():
        ledger = tc.ledger(schedule)
        kept = [max(held.held["activations"]) for held in (base, ledger)]
        shares = [1 - kept[1] / kept[0], 1 - ledger.peak_bytes / base.peak_bytes]
        extra = flops_of(schedule) / flops_of(stored) - 1
        found.append(
            [
                f"{name}, batch {batch}", percent(claim.share, 0), what, gib(kept[0]),
                percent(shares[0]), gib(base.peak_bytes), percent(shares[1]), percent(extra),
            ]
        )  # fmt: skip
    return found


def share_of_total(network: Network) -> float:
    """Return the share of the total, Adam's state included, that sqrt(n) saves."""
    graph = training_graph(network)
    peaks = [tc.replay(tc.plan(graph, policy)).peak_bytes for policy in ("store_all", "sqrt_n")]
    return 1 - (peaks[1] + graph.source_bytes) / (peaks[0] + graph.source_bytes)


@cache
def batches(name: str) -> dict[int, float]:
    """Return the share of the total saved at the smallest batch where a claim holds, and before.

    The share grows with the batch, because only activations do.
    """
    claim = CLAIMS[name]
    few, enough = 1, MOST
    shares = {few: share_of_total(claim.make(few)), enough: share_of_total(claim.make(enough))}
    assert shares[few] < claim.share <= shares[enough]
    while enough - few > 1:
        middle = (few + enough) // 2
        shares[middle] = share_of_total(claim.make(middle))
        few, enough = (middle, enough) if shares[middle] < claim.share else (few, middle)
    return {few: shares[few], enough: shares[enough]}


def verdict(name: str) -> str:
    """Return a sentence with the reading under which a claim is confirmed."""
    (few, below), (enough, above) = batches(name).items()
    return (
        f"- **{name}**, {percent(CLAIMS[name].share, 0)}: of activations alone √n saves more than "
        f"that. Of the total it saves {percent(below)} at a batch of {few}, and {percent(above)} "
        f"at {enough}."
    )


HEADER = (
    "network", "claimed", "plan", "activations, store-all", "saving", "total, store-all",
    "saving of the total", "extra FLOPs",
)  # fmt: skip


def claims() -> str:
    """Return the table of the four claims, and their verdicts."""
    body = [row for name in CLAIMS for row in rows_of(name, max(batches(name)))]
    return "\n\n".join([rows(HEADER, body), "\n".join(map(verdict, CLAIMS))])
