"""Reference implementation of block-level memory accounting, for tests of pictures."""

from collections.abc import Iterator

import tinyckpt as tc

Block = tuple[int, int, bool]  # the value that it was taken for, at which step, by a recomputation


def blocks_held(trace: tc.Trace) -> Iterator[set[Block]]:
    """Yield the live blocks after every step: a block is live while any value in it is resident."""
    graph = trace.graph
    times = [0] * len(graph.operators)
    blocks: dict[int, Block] = {}  # of resident values
    for place, step in enumerate(trace.steps):
        made: tuple[int, ...] = ()
        if isinstance(step, tc.Compute):
            times[step.operator] += 1
            made = graph.operators[step.operator].outputs
        elif isinstance(step, tc.Fetch):
            made = (step.data,)
        else:
            blocks.pop(step.data, None)
        for data in made:
            base, producer = graph.data[data].view_of, graph.data[data].producer
            assert producer is not None
            if base is None or isinstance(step, tc.Fetch):
                blocks[data] = (data, place, times[producer] > 1)
            elif base in blocks:
                blocks[data] = blocks[base]
        yield set(blocks.values())
