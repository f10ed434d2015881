"""Ten networks, written once for both engines: ``engine`` is tinyckpt, or the course's.

That is ``mini``: the solutions of parts 1 to 3 as one file.
"""

import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from tinyckpt.course.handing_out import solution_of

COURSE = Path(__file__).parents[2] / "course"
SOLVED = [COURSE / "solutions" / f"part_{part}.py" for part in (1, 2, 3)]
MINI = solution_of(runpy.run_path(str(COURSE / "one_file.py"))["joined"](SOLVED))
mini = ModuleType("mini")
exec(MINI, mini.__dict__)

Loss = Callable[..., Any]
WIDTH, BATCH = 6, 4


def mlp(engine: Any) -> Loss:
    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = engine.tanh(x @ w)
        return engine.half_squared_norm(x)

    return loss


def residual(engine: Any) -> Loss:
    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = x + engine.tanh(x @ w)
        return engine.half_squared_norm(x)

    return loss


def residual_of_two(engine: Any) -> Loss:
    def loss(weights: Any, x: Any) -> Any:
        for first, second in zip(weights[::2], weights[1::2], strict=True):
            x = x + engine.tanh(engine.tanh(x @ first) @ second)
        return engine.half_squared_norm(x)

    return loss


def gated(engine: Any) -> Loss:
    """Two branches that join in each layer."""

    def loss(weights: Any, x: Any) -> Any:
        for first, second in zip(weights[::2], weights[1::2], strict=True):
            x = engine.tanh(x @ first) * engine.tanh(x @ second)
        return engine.half_squared_norm(x)

    return loss


def u_shaped(engine: Any) -> Loss:
    """Skip connections from the first half to the second: no cut is crossed by one value alone."""

    def loss(weights: Any, x: Any) -> Any:
        half, skipped = len(weights) // 2, []
        for w in weights[:half]:
            x = engine.tanh(x @ w)
            skipped.append(x)
        for w in weights[half:]:
            x = engine.tanh(x @ w) + skipped.pop()
        return engine.half_squared_norm(x)

    return loss


def shared(engine: Any) -> Loss:
    """One weight in eight layers, whose contributions add up; and a value read twice."""

    def loss(weights: Any, x: Any) -> Any:
        (w,) = weights
        for _ in range(8):
            x = engine.tanh(x @ w)
        return engine.half_squared_norm(x * x)

    return loss


def dense(engine: Any) -> Loss:
    """Each layer reads the two before it."""

    def loss(weights: Any, x: Any) -> Any:
        values = [x, engine.tanh(x)]
        for w in weights:
            before, last = [*pairwise(values)][-1]
            values.append(engine.tanh(last @ w + before))
        return engine.half_squared_norm(values[-1])

    return loss


# Of each: the loss, and how many weights it takes.
NETWORKS: dict[str, tuple[Callable[[Any], Loss], int]] = {
    "one layer": (mlp, 1),
    "MLP of 9": (mlp, 9),
    "MLP of 13": (mlp, 13),
    "residual of 6": (residual, 6),
    "residual of 9": (residual, 9),
    "residual blocks of two": (residual_of_two, 10),
    "gated": (gated, 8),
    "U-shaped": (u_shaped, 8),
    "shared weight": (shared, 1),
    "dense": (dense, 7),
}
