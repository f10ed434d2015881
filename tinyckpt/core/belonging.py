"""What the operators that are added to a graph under construction belong to."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinyckpt.core.graph import Phase

if TYPE_CHECKING:
    from tinyckpt.core.builder import Builder

# The graph that is under construction now, if one is.
ACTIVE_BUILDER: ContextVar[Builder | None] = ContextVar("ACTIVE_BUILDER", default=None)


@dataclass(frozen=True, slots=True)
class Belonging:
    """What the operators that are added now belong to.

    Attributes:
        phase: the graph's forward or its backward half.
        adjoint_of: the forward operator whose adjoint they are part of, or None.
        name: what they are called; after their primitive, if not given.
        scope, regions: as in ``Operator``.
    """

    phase: Phase = "forward"
    adjoint_of: int | None = None
    name: str | None = None
    scope: str = ""
    regions: tuple[int, ...] = ()


class Around:
    """A context manager: what is added inside belongs elsewhere than what is added around it."""

    __slots__ = ("builder", "inside", "outside")

    def __init__(self, builder: Builder, inside: Belonging) -> None:
        self.builder, self.inside = builder, inside

    def __enter__(self) -> None:
        self.outside, self.builder._here = self.builder._here, self.inside

    def __exit__(self, *raised: object) -> None:
        self.builder._here = self.outside
