"""The operators, one file a family; ``PRIMITIVES`` lists every primitive there is."""

from tinyckpt.ops import elementwise, linalg, nn, random, reduce, shape
from tinyckpt.ops.primitive import Primitive, apply, apply_all

PRIMITIVES: dict[str, Primitive] = {
    fact.name: fact
    for family in (elementwise, linalg, nn, random, reduce, shape)
    for fact in vars(family).values()
    if isinstance(fact, Primitive)
}

__all__ = ["PRIMITIVES", "Primitive", "apply", "apply_all"]
