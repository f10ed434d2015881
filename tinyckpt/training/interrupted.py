"""A step that ended in its middle: a dirty flag on the state while its arrays are updated in place.

A step writes to the arrays of the state one by one, each as soon as nothing reads it any more. If
it ends between the first of these writes and the last (Ctrl-C, no memory, a kernel that fails), the
arrays belong in part to one step and in part to the next. So the state has one more entry from the
first write to the last, ``state["mixed"]``, set before and taken away after: whatever ends the
step, wherever, the entry is there if the arrays are mixed. It goes along with copies of the state
and pickles, ``save_params`` refuses a tree that has it anywhere, and so does every step. What is
taken out of the state, such as its parameters alone, says nothing.

A step that ends before its first write has changed nothing, and one that ends after its last is
done; either state is as good as any. What micro-batches add up their gradients in is not part of
it: each step begins it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyckpt.base.tree import Tree

MIXED = "mixed"
OF_A_STATE = {"parameters", "optimizer", "step"}  # and maybe more
WHAT_TO_DO = (
    "a step was interrupted after it had begun to update the state in place, and arrays of two "
    "steps are mixed; go on from a state that was saved before, or delete its entry 'mixed' to "
    "take the arrays as they are"
)


class Writes:
    """What ``write_over`` tells of its writes to one state.

    Args:
        state: what is marked.
        ahead: the identities of those arrays that the program of one part of a step is yet to
            write to, apart from scratch memory. Writes to others are somebody else's.
        completes: whether the step is done with the last of them.
    """

    def __init__(self, state: dict[str, Any], ahead: set[int], completes: bool) -> None:
        self.state, self.ahead, self.completes = state, ahead, completes

    def begin(self, source: Any) -> None:
        """Mark the state: an array is about to be written to."""
        if id(source) in self.ahead and MIXED not in self.state:
            self.state[MIXED] = np.array(True)

    def end(self, source: Any) -> None:
        """Take the mark away if that was the last write of the step."""
        self.ahead.discard(id(source))
        if self.completes and not self.ahead:
            self.state.pop(MIXED, None)


def is_mixed(tree: Tree) -> bool:
    """Whether a tree is a state that a step left in its middle."""
    return isinstance(tree, dict) and MIXED in tree and set(tree) >= OF_A_STATE


def rest_of(state: Mapping[str, Tree]) -> dict[str, Tree]:
    """Return what a program takes of a state besides the parameters."""
    return {key: tree for key, tree in state.items() if key not in ("parameters", MIXED)}
