"""Crash consistency of in-place training steps: a dirty flag from the first write to the last.

A step writes to the arrays of the state one by one, each as soon as nothing reads it any more. If
it is interrupted between the first of these writes and the last (Ctrl-C, out of memory, a failing
kernel), the arrays belong in part to one step and in part to the next. So the state has one more
entry from the first write to the last, ``state["mixed"]``, set before and removed after: whatever
interrupts the step, the entry is present if the arrays are mixed. Copies and pickles of the state
keep it; ``save_params`` refuses a tree that contains it anywhere, and so does every step. A part
that is taken out of the state, such as its parameters, does not carry it.

A step interrupted before its first write has changed nothing, and one interrupted after its last is
complete; either state is valid. Arrays in which micro-batches accumulate gradients do not count:
each step initialises them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyckpt.base.tree import Tree

MIXED = "mixed"
STATE_ENTRIES = {"parameters", "optimizer", "step"}  # entries that every state has, among others
MIXED_STATE_ADVICE = (
    "a step was interrupted after it had begun to update the state in place, and arrays of two "
    "steps are mixed; go on from a state that was saved before, or delete its entry 'mixed' to "
    "take the arrays as they are"
)


class Writes:
    """Observer of in-place writes to one state, called by ``write_over``; sets the dirty flag.

    Args:
        state: to be flagged.
        ahead: ``id()`` of the arrays that the program of one part of a step has not written yet,
            except accumulators. Writes to other arrays belong to other programs.
        completes: whether the step is complete after the last of them.
    """

    def __init__(self, state: dict[str, Any], ahead: set[int], completes: bool) -> None:
        self.state, self.ahead, self.completes = state, ahead, completes

    def begin(self, source: Any) -> None:
        """Set the flag: an array is about to be written."""
        if id(source) in self.ahead and MIXED not in self.state:
            self.state[MIXED] = np.array(True)

    def end(self, source: Any) -> None:
        """Clear the flag if that was the last write of the step."""
        self.ahead.discard(id(source))
        if self.completes and not self.ahead:
            self.state.pop(MIXED, None)


def is_mixed(tree: Tree) -> bool:
    """Whether a tree is a state with the dirty flag: left by an interrupted step."""
    return isinstance(tree, dict) and MIXED in tree and set(tree) >= STATE_ENTRIES


def without_parameters(state: Mapping[str, Tree]) -> dict[str, Tree]:
    """Return the entries of a state that a program takes in addition to the parameters."""
    return {key: tree for key, tree in state.items() if key not in ("parameters", MIXED)}
