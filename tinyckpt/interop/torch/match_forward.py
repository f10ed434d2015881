"""Which forward operator a backward one is the adjoint of, by the numbers that autograd gives.

Every node of a joint graph has the number of the function that autograd made last, forward, or is
evaluating, backward. So an operator that autograd has no function for has the number of the one
before it; and that one may be gone: of a view that is written to, only copies are left.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from tinyckpt.interop.torch.capture import kind_of
from tinyckpt.interop.torch.joint import Joint, is_piece


def number_of(node: fx.Node) -> int | None:
    """Return autograd's number of the forward operator that a node belongs to, either way.

    A sum of gradients of one value belongs to none, though PyTorch leaves it the number of whatever
    the forward half did last.
    """
    number: int | None = node.meta.get("seq_nr")
    known = isinstance(number, int) and number >= 0 and not node.meta.get("is_gradient_acc")
    return number if known else None


def is_copy_of_view(node: fx.Node) -> bool:
    """Whether a view is taken once more, of a value that was written to; it has the first's number.

    Of a view of a view, all that are taken once more have the number of the last.
    """
    return bool(node.meta.get("is_functional_regenerated"))


def numbered(joint: Joint, forward: Iterable[fx.Node]) -> dict[int | None, fx.Node]:
    """Return the forward operator of each number: the first that a gradient can flow through.

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
        reads = {each.args[0] if is_piece(each) else each for each in node.all_input_nodes}
        if flows.isdisjoint(reads) or kind_of(node) == "detach":
            continue
        flows.add(node)
        number = number_of(node)
        before = found.get(number)
        longer = before in reads and is_copy_of_view(node) and is_copy_of_view(before)
        if number is not None and (before is None or longer):
            found[number] = node
    return found
