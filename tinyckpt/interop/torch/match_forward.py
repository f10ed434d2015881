"""Matching of backward operators to forward operators, by autograd's sequence numbers.

In a joint graph every forward node has the sequence number of the autograd function created last,
every backward node that of the function being evaluated. So an operator without an autograd
function has the number of the one before it, which may have been eliminated: of a view that is
written to, only copies remain.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from tinyckpt.interop.torch.capture import kind_of
from tinyckpt.interop.torch.joint import JointGraph, is_getitem


def sequence_number(node: fx.Node) -> int | None:
    """Return autograd's sequence number of a node, which a forward operator and its vjps share.

    An accumulation of gradients of one value belongs to no operator, though PyTorch gives it the
    number of the forward pass's last function.
    """
    number: int | None = node.meta.get("seq_nr")
    known = isinstance(number, int) and number >= 0 and not node.meta.get("is_gradient_acc")
    return number if known else None


def is_copy_of_view(node: fx.Node) -> bool:
    """Whether a view is regenerated after a write to its base; it has the first view's number.

    For a view of a view, all regenerated views have the number of the last.
    """
    return bool(node.meta.get("is_functional_regenerated"))


def forward_by_sequence_number(
    joint: JointGraph, forward: Iterable[fx.Node]
) -> dict[int | None, fx.Node]:
    """Map each sequence number to its forward operator: the first that a gradient can flow through.

    Args:
        joint: the graph.
        forward: its forward operators, in order.
    """
    primals = [node for node in joint.sources if node.op == "placeholder"]
    flows = {
        primal
        for primal, gradient in zip(primals, joint.gradients, strict=False)
        if isinstance(gradient, fx.Node)
    }
    found: dict[int | None, fx.Node] = {}
    for node in forward:
        reads = {each.args[0] if is_getitem(each) else each for each in node.all_input_nodes}
        if flows.isdisjoint(reads) or kind_of(node.target) == "detach":
            continue
        flows.add(node)
        number = sequence_number(node)
        before = found.get(number)
        longer = before in reads and is_copy_of_view(node) and is_copy_of_view(before)
        if number is not None and (before is None or longer):
            found[number] = node
    return found
