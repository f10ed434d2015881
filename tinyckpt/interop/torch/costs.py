"""Cost model of PyTorch operators: FLOPs, or seconds by a roofline (Williams et al. 2009)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import fx
from torch.utils.flop_counter import flop_registry

from tinyckpt.interop.torch.capture import kind_of, packet_of, storage_of
from tinyckpt.interop.torch.joint import Values

# The roofline's machine is NVIDIA's A100 of 80 GB by its data sheet: peak bfloat16 matrix product
# rate and memory bandwidth. Plans depend on the ratio alone, the ridge point of 153 FLOPs per byte.
FLOPS_PER_SECOND = 312e12
BYTES_PER_SECOND = 2039e9

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


class OperatorCall(NamedTuple):
    """An evaluation of an operator, or of its derivative; its tensors have layouts, and no data.

    Attributes:
        by: which of the tensors that it is called with to differentiate by; none: to evaluate it.
    """

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    by: tuple[int, ...] = ()


def call_of(values: Values, node: fx.Node) -> OperatorCall:
    """Return the evaluation of a node."""
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
    return OperatorCall(node.target, args, kwargs, values[node])


def flops_of(call: OperatorCall) -> int:
    """Return the floating-point operations of one evaluation, as PyTorch's own counter counts them.

    Only matrix products, convolutions and attention count; other operators cost nothing. PyTorch's
    counter lacks attention on a CPU, which is counted here as it counts attention on GPUs.
    """
    kind, args = kind_of(call.operator), call.args
    if kind == ATTENTION:
        return attention_flops(args[0], args[1], products=2)
    if kind == f"{ATTENTION}_backward":
        return attention_flops(args[1], args[2], products=5)
    count = flop_registry.get(packet_of(call.operator))
    return int(count(*args, **call.kwargs, out_val=call.result)) if count else 0


def attention_flops(query: Any, key: Any, products: int) -> int:
    """Return the FLOPs of attention: a number of products of the size of queries times keys.

    Forward: scores, and their product with the values. Backward: the scores once more, and two
    gradients for each product. A mask saves nothing in this count.
    """
    batch, heads, queries, width = query.shape
    return 2 * products * int(batch * heads * queries * key.shape[2] * width)


def roofline_seconds(
    values: Values, node: fx.Node, sources: Iterable[fx.Node], flops: int
) -> float:
    """Return the seconds of one evaluation: arithmetic or memory traffic, whichever takes longer.

    A view has neither.

    Args:
        values: of the nodes of a graph.
        node: the node that makes the results.
        sources: its operands.
        flops: of the evaluation.
    """
    read = [storage_of(values[source]) for source in sources]
    made = values[node]
    written = [storage_of(value) for value in (made if isinstance(made, list | tuple) else [made])]
    before = {found for found in read if found}
    if flops == 0 and all(found in before for found in written if found):
        return 0.0
    moved = sum(found[1] for found in (*before, *written) if found)
    return max(flops / FLOPS_PER_SECOND, moved / BYTES_PER_SECOND)
