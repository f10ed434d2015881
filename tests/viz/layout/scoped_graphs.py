"""Random abstract graphs: large, with scopes, views and unpaired backward operators."""

from random import Random

import tinyckpt as tc
from tinyckpt.core.graph import Phase, Role
from tinyckpt.documents.verifier import check_graph

SPEC = tc.Spec((2,), "float64")


class Growing:
    """Builder of a graph: every operator has one output, and some outputs are views."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.data = [tc.DataNode(0, "x", SPEC, "input", SPEC.nbytes)]
        self.operators: list[tc.Operator] = []

    def add(self, phase: Phase, inputs: list[int], adjoint_of: int | None, scope: str = "") -> None:
        """Add one operator and its output."""
        operator, node = len(self.operators), len(self.data)
        role: Role = "activation" if phase == "forward" else "cotangent"
        nbytes, base = (0, inputs[0]) if self.random.random() < 0.1 else (SPEC.nbytes, None)
        name = f"{phase}_{operator}"
        self.data.append(tc.DataNode(node, name, SPEC, role, nbytes, operator, base))
        self.operators.append(
            tc.Operator(operator, name, phase, tuple(inputs), (node,), phase, adjoint_of, scope)
        )


def scoped_graph(count: int, seed: int) -> tc.Graph:
    """Return an abstract graph of ``count`` forward operators, to partition and draw."""
    random = Random(seed)
    reach = random.choice([1, 1, 3, 20])
    depth = random.randrange(4)
    change = random.choice([0.02, 0.1, 0.5])
    mirrored, loose = random.choice([0.0, 0.7, 1.0]), random.choice([0.0, 0.1, 0.5])
    scope = [0] * depth
    graph = Growing(random)
    for _ in range(count):
        for level in range(depth):
            scope[level] += random.random() < change
        newest = len(graph.data) - 1
        picks = {max(0, newest - random.randrange(reach)) for _ in range(random.randint(1, 2))}
        path = "/".join(f"s{number}" for number in scope)
        graph.add("forward", sorted(picks, reverse=True), None, path)
    for forward in reversed(range(count)):
        if random.random() < mirrored:
            for _ in range(random.randint(1, 2)):
                graph.add("backward", [len(graph.data) - 1, forward + 1], forward)
        elif random.random() < loose:
            graph.add("backward", [len(graph.data) - 1], None)
    made = tc.Graph("random", tuple(graph.data), tuple(graph.operators), (0,), len(graph.data) - 1)
    check_graph(made)
    return made
