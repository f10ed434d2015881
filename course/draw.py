"""Hand your schedule to tinyckpt: it replays it, and draws it.

In: a graph of part 1, a schedule of it and the trace that ``run`` of part 2 returned. Out: a trace
of tinyckpt, which every picture of ``tinyckpt.viz`` takes. The replay checks each step and counts
values and bytes from their sizes alone, so that two machines have to agree.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tinyckpt as tc


def replayed(
    graph: Any, steps: Any, trace: Any, title: str = "mine", checkpoints: Iterable[int] = ()
) -> tc.Trace:
    """Replay a schedule with tinyckpt, and return its trace.

    Args:
        graph: a graph of part 1.
        steps: a schedule of it, which computes every operator at least once.
        trace: what ``run`` of part 2 returned for it.
        title: the name of the schedule in pictures.
        checkpoints: ids of the values that the policy chose to save; pictures mark them.

    Raises:
        ScheduleError: if a step is illegal; says which, and why.
        ValueError: if the replay counts otherwise than ``run`` did; says where first.
    """
    sizes = {}
    before = 0
    for (verb, index), after in zip(steps, trace.live_bytes, strict=True):
        if verb == "compute":
            sizes[graph.operators[index].output] = after - before
        before = after
    drawn = tinyckpt_graph(graph, sizes)
    ids = {node.name: node.id for node in drawn.data}
    taken = [
        tc.Compute(index) if verb == "compute" else tc.Free(ids[f"v{index}"])
        for verb, index in steps
    ]
    kept = tuple(sorted(ids[f"v{data}"] for data in checkpoints))
    found = tc.replay(tc.Schedule(drawn, tuple(taken), title, checkpoints=kept))
    if found.evaluations != trace.evaluations:
        raise ValueError(f"{trace.evaluations} evaluations; the replay has {found.evaluations}")
    for what, mine, theirs in (
        ("values", trace.live_values, found.nodes),
        ("bytes", trace.live_bytes, found.live_bytes),
    ):
        for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one != other:
                raise ValueError(f"step {step}: {one} live {what}; the replay has {other}")
    return found


def tinyckpt_graph(graph: Any, sizes: dict[int, int]) -> tc.Graph:
    """Return a graph of part 1 as one of tinyckpt, with values named ``v0``, ``v1`` and so on.

    Operators of the backward pass stand below the forward operator whose output they last read.
    """
    producer = {operator.output: index for index, operator in enumerate(graph.operators)}
    counted: Counter[str] = Counter()
    names: list[str] = []
    operators = []
    for index, operator in enumerate(graph.operators):
        counted[operator.kind] += 1
        names.append(f"{operator.kind}_{counted[operator.kind]}")
        entry: dict[str, Any] = {
            "name": names[-1],
            "kind": operator.kind,
            "inputs": [f"v{data}" for data in operator.inputs],
            "outputs": [f"v{operator.output}"],
        }
        if index >= graph.forward_count:
            read = [producer[x] for x in operator.inputs if x in producer]
            forward = [other for other in read if other < graph.forward_count]
            entry["phase"] = "backward"
            if forward:
                entry["adjoint_of"] = names[max(forward)]
        operators.append(entry)
    values = [*graph.sources, *(operator.output for operator in graph.operators)]
    gradients = [data for data in graph.results if producer[data] >= graph.forward_count]
    document = {
        "schema": "tinyckpt.graph",
        "version": 2,
        "name": "my graph",
        "data": [{"name": f"v{data}", "bytes": sizes.get(data, 0)} for data in values],
        "operators": operators,
        "results": [f"v{data}" for data in graph.results if data not in gradients],
        "gradients": [f"v{data}" for data in gradients],
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return tc.load_graph(path)
