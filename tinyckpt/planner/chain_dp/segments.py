"""Segment checkpointing (Chen): keep the values that cross the cuts, recompute each segment once.

The lowering that the policies of Chen et al. (2016, arXiv 1604.06174) share; they differ in where
they cut. The values of the last segment are saved as well, since the backward sweep begins there:
recomputing them would save no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyckpt.base.units import counted
from tinyckpt.core.cuts import last_backward_readers, retaining_order, some_names
from tinyckpt.core.graph import Graph


@dataclass(frozen=True, slots=True)
class Cut:
    """A boundary between two segments: after an operator, with the values to keep there."""

    after: int
    kept: tuple[int, ...]
    at_separator: bool


def segmented_order(graph: Graph, cuts: Sequence[Cut]) -> list[int]:
    """Return the order of evaluations that keeps the values crossing the cuts."""
    last_target = last_backward_readers(graph)
    last_cut = cuts[-1].after if cuts else -1
    kept = set(values_kept_at_cuts(cuts)).union(
        node.id
        for node in graph.data
        if node.producer is not None
        and last_cut < node.producer < graph.forward_count
        and last_target[node.id] >= 0
    )
    return retaining_order(graph, kept, reuse=True)


def values_kept_at_cuts(cuts: Sequence[Cut]) -> list[int]:
    """Return the values kept at any of the cuts."""
    return sorted({data for cut in cuts for data in cut.kept})


def residual_operators(graph: Graph) -> list[int]:
    """Return the forward operators whose results the backward pass reads."""
    last_target = last_backward_readers(graph)
    return [
        operator.id
        for operator in graph.operators[: graph.forward_count]
        if any(last_target[data] >= 0 for data in operator.outputs)
    ]


def segments_note(graph: Graph, stages: int, segments: int, cuts: Sequence[Cut]) -> str:
    """Return the note of a segmented schedule: stages, segments, separators, kept values."""
    note = f"{counted(stages, 'stage')} in {counted(segments, 'segment')}"
    several = sum(not cut.at_separator for cut in cuts)
    if several:
        note += f"; no separator near {several} of {counted(len(cuts), 'cut')}"
    if cuts:
        note += f"; kept {some_names([graph.data[data] for data in values_kept_at_cuts(cuts)])}"
    return note
