"""What an evaluation of a PyTorch operator costs: FLOPs, or seconds by a roofline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx
from torch.utils.flop_counter import flop_registry

from tinyckpt.interop.torch.capture import kind_of, packet_of, storage_of
from tinyckpt.interop.torch.joint import Joint

# The roofline's machine is NVIDIA's A100 of 80 GB by its data sheet: matrix products of bfloat16,
# and its memory. What a plan depends on is their ratio: 153 FLOPs in the time of a byte.
FLOPS_PER_SECOND = 312e12
BYTES_PER_SECOND = 2039e9

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def flops_of(joint: Joint, node: fx.Node) -> int:
    """Return the floating-point operations of one evaluation, as PyTorch's own counter counts them.

    That counts products and convolutions; all else costs nothing. Of attention on a CPU it does not
    know, which is counted here as it counts attention on GPUs.
    """
    packet = packet_of(node)
    values = joint.values
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
    if kind_of(node) == ATTENTION:
        return attention_flops(args[0], args[1], products=2)
    if kind_of(node) == f"{ATTENTION}_backward":
        return attention_flops(args[1], args[2], products=5)
    count = flop_registry.get(packet)
    return int(count(*args, **kwargs, out_val=values[node])) if count else 0


def attention_flops(query: Any, key: Any, products: int) -> int:
    """Return the FLOPs of attention: so many products of queries and keys, or of the same size.

    Forward: scores and their mixture of values. Backward: the scores anew, and two gradients of
    each product. A mask spares nothing in this count.
    """
    batch, heads, queries, width = query.shape
    return 2 * products * int(batch * heads * queries * key.shape[2] * width)


def roofline_seconds(joint: Joint, node: fx.Node, sources: Iterable[fx.Node], flops: int) -> float:
    """Return the seconds of one evaluation: those of its arithmetic or of its traffic, if longer.

    A view has neither.

    Args:
        joint: the graph.
        node: what makes the results.
        sources: what is read for that.
        flops: of the evaluation.
    """
    read = [storage_of(joint.values[source]) for source in sources]
    made = joint.values[node]
    written = [storage_of(value) for value in (made if isinstance(made, list | tuple) else [made])]
    before = {found for found in read if found}
    if flops == 0 and all(found in before for found in written if found):
        return 0.0
    moved = sum(found[1] for found in (*before, *written) if found)
    return max(flops / FLOPS_PER_SECOND, moved / BYTES_PER_SECOND)
