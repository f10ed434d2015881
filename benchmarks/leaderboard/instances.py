"""Instances of the leaderboard: published graphs, read from where they were fetched, and our own.

An instance is a list of operators in the published order of evaluation, each with a cost, the bytes
of the one value that it makes, and the values that it reads. ``text_of`` writes it as the text that
every planner reads (see ``checker``). The text has no name in it.

- Moccasin's random layered graphs (Bartan et al. 2023, after Gagrani et al. 2022): node-link JSON,
  edges from producer to reader under the keys "0" and "1", nodes with out_cost and duration, and
  the order of evaluation beside them.
- Checkmate's training graphs (Jain et al. 2020), as published with Moccasin: node-link JSON with
  source and target, cost_cpu and cost_ram; nodes are in order of evaluation.
- Operator logs of Dynamic Tensor Rematerialization (Kirisame et al. 2021): ``dtr_log``.
- Joint graphs of PyTorch training steps, which ship as such texts; ``joint`` traces them.
- Networks of this project: views are merged with the value whose memory they share, and the
  outputs of one operator are one value. Workspace is left out: the text has none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tinyckpt as tc
from tinyckpt.core.graph import Phase, Role

DATA = Path(__file__).with_name("data")  # texts of instances that ship
HEADER = "# id cost bytes forward|backward result|value inputs..."


class InstanceError(Exception):
    """A file that is missing, is not the published one, or is no such graph."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Operators in the given order: operator i makes value i.

    Attributes:
        costs: of one evaluation of each operator, integers.
        sizes: of each value, in bytes.
        reads: for each operator, the values that it reads, all smaller.
        backward: for each operator, whether it is of the backward pass.
        results: the values that are live at the end.
    """

    costs: tuple[int, ...]
    sizes: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    backward: tuple[bool, ...]
    results: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The peak of the given order, each value freed after its last reader; in bytes."""
        last = dict.fromkeys(self.results, len(self.costs))
        for operator, values in enumerate(self.reads):
            for value in values:
                last[value] = max(last.get(value, 0), operator)
        live = most = 0
        freed: dict[int, int] = {}
        for operator, size in enumerate(self.sizes):
            live += size
            most = max(most, live)
            end = last.get(operator, operator)
            freed[end] = freed.get(end, 0) + size
            live -= freed.pop(operator, 0)
        return most

    @property
    def least(self) -> int:
        """The largest working set, inputs and output, or all results: no schedule needs less."""
        working = [
            size + sum(self.sizes[value] for value in values)
            for size, values in zip(self.sizes, self.reads, strict=True)
        ]
        return max(*working, sum(self.sizes[value] for value in self.results))


def text_of(instance: Instance) -> str:
    """Return the text that planners and the checker read."""
    lines = [HEADER]
    results = set(instance.results)
    for own, (cost, size, reads, backward) in enumerate(
        zip(instance.costs, instance.sizes, instance.reads, instance.backward, strict=True)
    ):
        phase = "backward" if backward else "forward"
        kind = "result" if own in results else "value"
        lines.append(" ".join(map(str, (own, cost, size, phase, kind, *reads))))
    return "\n".join(lines) + "\n"


def parsed(text: str) -> Instance:
    """Return the instance of a text."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return Instance(
        tuple(int(row[1]) for row in rows),
        tuple(int(row[2]) for row in rows),
        tuple(tuple(map(int, row[5:])) for row in rows),
        tuple(row[3] == "backward" for row in rows),
        tuple(int(row[0]) for row in rows if row[4] == "result"),
    )


def graph_of(instance: Instance) -> tc.Graph:
    """Return the graph of abstract operators that planners of this project take."""
    data: list[tc.DataNode] = []
    operators: list[tc.Operator] = []
    for own, (cost, size, reads, backward) in enumerate(
        zip(instance.costs, instance.sizes, instance.reads, instance.backward, strict=True)
    ):
        role: Role = "cotangent" if backward else "activation"
        spec = tc.Spec((size,), "uint8")
        data.append(tc.DataNode(own, f"v{own}", spec, role, size, own))
        phase: Phase = "backward" if backward else "forward"
        operators.append(tc.Operator(own, f"o{own}", "layer", reads, (own,), phase, cost=cost))
    made_backward = [value for value in instance.results if instance.backward[value]]
    others = [value for value in instance.results if not instance.backward[value]]
    gradients = made_backward if any(instance.backward) else None
    return tc.Graph("instance", tuple(data), tuple(operators), (), others, gradients)


# Published instances ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """A published file: its name, where it is fetched from, its checksum and its reader."""

    file: str
    url: str
    sha256: str
    read: Callable[[bytes], Instance]


def layered(document: Mapping[str, Any]) -> Instance:
    """Read a random layered graph of Moccasin's, in its own order."""
    return node_link(document, "0", "1", "duration", "out_cost", document["graph"]["order"])


def training_graph(document: Mapping[str, Any]) -> Instance:
    """Read a training graph of Checkmate's: nodes are in order of evaluation."""
    order = [node["id"] for node in document["nodes"]]
    return node_link(document, "source", "target", "cost_cpu", "cost_ram", order)


def node_link(
    document: Mapping[str, Any], source: str, target: str, cost: str, size: str, order: list[int]
) -> Instance:
    """Read a node-link document of networkx, its nodes renumbered in an order of evaluation.

    Args:
        document: the JSON.
        source, target: keys of an edge: producer and reader.
        cost, size: keys of a node.
        order: the ids of all nodes.
    """
    nodes = {node.get("id", node["name"]): node for node in document["nodes"]}
    place = {own: number for number, own in enumerate(order)}
    if sorted(place) != sorted(nodes):
        raise InstanceError("the order does not name every node once")
    reads: list[set[int]] = [set() for _ in order]
    for edge in document["links"]:
        producer, reader = place[edge[source]], place[edge[target]]
        if producer >= reader:
            raise InstanceError(
                f"{edge[target]} is evaluated before {edge[source]}, which it reads"
            )
        reads[reader].add(producer)
    read = set().union(*reads)
    every = [nodes[own] for own in order]
    return Instance(
        tuple(int(node[cost]) for node in every),
        tuple(int(node[size]) for node in every),
        tuple(tuple(sorted(values)) for values in reads),
        tuple(bool(node.get("backward", False)) for node in every),
        tuple(own for own in range(len(order)) if own not in read),
    )


COMMIT = "ff7ad8b1ae9a92a90fd06a4536f447d74bf045d1"
MOCCASIN = f"https://raw.githubusercontent.com/haoming-codes/moccasin/{COMMIT}/data/"


def published(name: str, sha256: str) -> Published:
    """Return the entry of one of Moccasin's files."""
    instance_in = layered if name.startswith("random_layered") else training_graph

    def read(content: bytes) -> Instance:
        return instance_in(json.loads(content))

    return Published(f"{name}.json", f"{MOCCASIN}{quote(name)}.json", sha256, read)


# The smallest first, in each family.
PUBLISHED: dict[str, Published] = {
    "vgg16": published(
        "VGG16 (MLSys)_256_(224, 224, 3)_train_nx",
        "4a62f7b7331e597b4b81fea77df7e1a8e31ca3e83b492d397cbee35975c1d30d",
    ),
    "vgg19": published(
        "VGG19 (MLSys)_256_(224, 224, 3)_train_nx",
        "cee494c535b1da611139bf418a1bfb801040588ba6926ff62d9baef8ca66a804",
    ),
    "unet": published(
        "vgg_unet (MLSys)_32_(416, 608, 3)_train_nx",
        "c87900dddeeddc071307862ca7fbd9d60c5c23d5e2ef025f219cd7e12d4d80aa",
    ),
    "fcn8": published(
        "fcn_8_vgg (MLSys)_32_(416, 608, 3)_train_nx",
        "9bbdd4c8615068f80ceae170ba89bc1541de9fca3a583ca47f5e29d483c00435",
    ),
    "segnet": published(
        "segnet (MLSys)_32_(416, 608, 3)_train_nx",
        "82fdcd648d4371c8a9691ea4fdd9a0e740d3dcbe63f4e142c78b835f934d8bfd",
    ),
    "mobilenet": published(
        "MobileNet (MLSys)_512_(224, 224, 3)_train_nx",
        "58fd766d2b36fc4b971e9fcf990f08444f7fbf22ccbebeee5fb0ce25bcad0ff0",
    ),
    "resnet50": published(
        "ResNet50 (MLSys)_256_(224, 224, 3)_train_nx",
        "ad49efb20824a07ece0b11ba9a5449ba06e63ef352f0914decbe5471dbab1b57",
    ),
    "layered-100": published(
        "random_layered_n100_w0.27_nlv0.75_ed0.2_scd0.14",
        "9d8c75c4962d0bc45bf4fd73a51a8e66cbb975904bba0c133ea1bfca2032419e",
    ),
    "layered-250": published(
        "random_layered_n250_w0.43_nlv0.75_ed0.2_scd0.14",
        "b048fb63c4857481fa53b31775507d21dceb5e203da3a63f95691eb9343d227d",
    ),
    "layered-500": published(
        "random_layered_n500_w0.36_nlv0.75_ed0.2_scd0.14",
        "6a437a2c7eef7ad7d13f2dad9cae0ae8823c15454d900ec06292f22809ba4138",
    ),
    "layered-1000": published(
        "random_layered_n1000_w0.31_nlv0.75_ed0.2_scd0.14",
        "adb564e95412b872dfb97db78618d364c7f8207664ff74d603f0d52b78fac582",
    ),
}

DTR_COMMIT = "eff53cc4804cc7d6246a6e5086861ce2b846f62b"
DTR_LOGS = {
    "dtr-unet": "unet-6-8000000000.0-2020-10-1-10-57-18",
    "dtr-resnet32": "resnet32-56-9000000000.0-2020-10-1-13-3-30",
    "dtr-transformer": "transformer-10-8000000000.0-2020-10-1-10-56-5",
    "dtr-inceptionv4": "inceptionv4-64-10000000000.0-2020-10-1-10-55-0",
    "dtr-densenet121": "tv_densenet121-84-10000000000.0-2020-10-1-13-41-18",
    "dtr-unrolled-gan": "unroll_gan-512-10000000000.0-2020-10-1-18-43-42",
    "dtr-treelstm": "treelstm-6-8000000000.0-2020-10-1-12-54-1",
    "dtr-lstm": "lstm-128-11000000000.0-2020-10-1-16-38-52",
}


def operator_log(member: str) -> Published:
    """Return the entry of one of the logs in DTR's archive."""

    def read(content: bytes) -> Instance:
        from benchmarks.leaderboard.dtr_log import log_in

        return log_in(content, f"logs/{member}-default.log")

    return Published(
        "logs.zip",
        f"https://raw.githubusercontent.com/uwsampl/dtr-prototype/{DTR_COMMIT}/simrd/logs.zip",
        "63579a07a6e7ce063f5ba49450dfb96a9f3995df736c423c27e1336f4365e02a",
        read,
    )


PUBLISHED.update({name: operator_log(member) for name, member in DTR_LOGS.items()})


def fetched(published: Published, folder: Path) -> Instance:
    """Read a published file from a folder, if its checksum is that of the published one.

    Raises:
        InstanceError: if it is not there, or is another file.
    """
    path = folder / published.file
    if not path.exists():
        raise InstanceError(f"{path} is not there; fetch it from {published.url}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != published.sha256:
        raise InstanceError(f"{path} has the SHA-256 {found}, the published {published.sha256}")
    return published.read(content)


# Our own ------------------------------------------------------------------------------------------


def merged(
    graph: tc.Graph,
    cost: Callable[[tc.Operator], int] = lambda operator: int(operator.flops),
    apart: bool = False,
) -> Instance:
    """Return a graph of this project with one value per operator, views merged with their base.

    An operator that makes a view alone is left out: what reads the view reads its base.

    Args:
        graph: the graph.
        cost: of an operator; by default its FLOPs, which are 0 where data are only moved.
        apart: whether a result that is one of several outputs is an operator of its own, with an
            even share of the cost. Else all outputs are live to the end with it.
    """
    maker: dict[int, int] = {}  # the new number of what computes each value, sources left out
    costs: list[int] = []
    sizes: list[int] = []
    reads: list[tuple[int, ...]] = []
    backward: list[bool] = []
    final = set(graph.outputs) if apart else set()
    for operator in graph.operators:
        nodes = [graph.data[data] for data in operator.outputs]
        bases = [node.view_of for node in nodes]
        if all(base is not None for base in bases):
            maker.update(
                (node.id, maker[node.view_of])
                for node in nodes
                if node.view_of is not None and node.view_of in maker
            )
            continue
        read = {maker[data] for data in operator.inputs if data in maker}
        parts = [[node] for node in nodes if node.id in final]
        others = [node for node in nodes if node.id not in final]
        parts += [others] if others else []
        for part in parts:
            maker.update((node.id, len(costs)) for node in part)
            costs.append(cost(operator) // len(parts))
            sizes.append(sum(node.nbytes for node in part))
            reads.append(tuple(sorted(read)))
            backward.append(operator.phase == "backward")
    results = sorted({maker[data] for data in graph.outputs if data in maker})
    return Instance(tuple(costs), tuple(sizes), tuple(reads), tuple(backward), tuple(results))


def needed(instance: Instance) -> Instance:
    """Return an instance without the operators that none of its results needs."""
    kept = set(instance.results)
    for own in reversed(range(len(instance.costs))):
        if own in kept:
            kept |= {*instance.reads[own]}
    order = sorted(kept)
    number = {own: place for place, own in enumerate(order)}
    return Instance(
        tuple(instance.costs[own] for own in order),
        tuple(instance.sizes[own] for own in order),
        tuple(tuple(number[value] for value in instance.reads[own]) for own in order),
        tuple(instance.backward[own] for own in order),
        tuple(number[own] for own in instance.results),
    )


def chain(n: int) -> Instance:
    """Return a chain of n layers with unit costs: Revolve's, of which the optimum is known."""
    found = merged(tc.networks.chain(n))
    return replace(found, costs=(1,) * len(found.costs))


def traced(name: str) -> Instance:
    """Return a joint graph that ships."""
    content = (DATA / f"{name}.txt.gz").read_bytes()
    return parsed(gzip.decompress(content).decode())


JOINT = ("joint-resnet50", "joint-vit", "joint-unet", "joint-gpt2", "joint-llama")
OWN: dict[str, Callable[[], Instance]] = {
    "chain-100": lambda: chain(100),
    "transformer": lambda: merged(tc.networks.transformer(4).graph()),
    **{name: partial(traced, name) for name in JOINT},
}


def instance_of(name: str, folder: Path | None) -> Instance:
    """Return an instance by name: our own, or a published one from the folder it was fetched to.

    Raises:
        InstanceError: if there is none of the name, or its file is not there.
    """
    if name in OWN:
        return OWN[name]()
    if name not in PUBLISHED:
        raise InstanceError(f"no instance {name}; there are {', '.join([*PUBLISHED, *OWN])}")
    if folder is None:
        raise InstanceError(f"{name} is a published file: --data is the folder that has it")
    return fetched(PUBLISHED[name], folder)
