"""Random graphs as plain data: large, with scopes, views and loose backward ends."""

from random import Random

import tinyckpt as tc
from tinyckpt.graph import Phase, Role, check_graph

SPEC = tc.Spec((2,), "float64")


def scoped_graph(count: int, seed: int) -> tc.Graph:
    """Return an abstract graph of ``count`` forward operators: it can be cut and drawn."""
    random = Random(seed)
    reach = random.choice([1, 1, 3, 20])
    depth = random.randrange(4)
    change = random.choice([0.02, 0.1, 0.5])
    mirrored, loose = random.choice([0.0, 0.7, 1.0]), random.choice([0.0, 0.1, 0.5])
    data = [tc.DataNode(0, "x", SPEC, "input", SPEC.nbytes)]
    operators: list[tc.Operator] = []
    scope = [0] * depth

    def add(kind: str, inputs: list[int], adjoint_of: int | None, backward: bool) -> None:
        operator, node = len(operators), len(data)
        is_view = random.random() < 0.1
        role: Role = "cotangent" if backward else "activation"
        phase: Phase = "backward" if backward else "forward"
        nbytes, base = (0, inputs[0]) if is_view else (SPEC.nbytes, None)
        data.append(tc.DataNode(node, f"{kind}_{node}", SPEC, role, nbytes, operator, base))
        path = "/".join(f"s{n}" for n in scope)
        operators.append(
            tc.Operator(
                operator,
                f"{kind}_{operator}",
                kind,
                tuple(inputs),
                (node,),
                phase,
                adjoint_of,
                path,
            )
        )

    for _ in range(count):
        for level in range(depth):
            scope[level] += random.random() < change
        newest = len(data) - 1
        picks = {max(0, newest - random.randrange(reach)) for _ in range(random.randint(1, 2))}
        add("f", sorted(picks, reverse=True), None, False)
    for forward in reversed(range(count)):
        if random.random() < mirrored:
            for _ in range(random.randint(1, 2)):
                add("b", [len(data) - 1, forward + 1], forward, True)
        elif random.random() < loose:
            add("g", [len(data) - 1], None, True)
    graph = tc.Graph("random", tuple(data), tuple(operators), (0,), len(data) - 1)
    check_graph(graph)
    return graph
