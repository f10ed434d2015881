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

Network = Callable[[Any, Any, Any], Any]
WIDTH, BATCH = 6, 4


def loss_of(name: str, engine: Any) -> Callable[..., Any]:
    """Return the loss of a network in an engine: half the squared norm of its output."""
    network, _ = NETWORKS[name]
    return lambda weights, x: engine.half_squared_norm(network(engine, weights, x))


def mini_chain(n: int) -> Any:
    """Return the course's graph of n layers of tanh: ``tc.networks.chain(n)``."""

    def loss(parameters: Any) -> Any:
        (x,) = parameters
        for _ in range(n):
            x = mini.tanh(x)
        return mini.half_squared_norm(x)

    return mini.differentiate(loss, 1, value=False)


def mlp(engine: Any, weights: Any, x: Any) -> Any:
    for w in weights:
        x = engine.tanh(x @ w)
    return x


def residual(engine: Any, weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + engine.tanh(x @ w)
    return x


def residual_of_two(engine: Any, weights: Any, x: Any) -> Any:
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        x = x + engine.tanh(engine.tanh(x @ first) @ second)
    return x


def gated(engine: Any, weights: Any, x: Any) -> Any:
    """Two branches that join in each layer."""
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        x = engine.tanh(x @ first) * engine.tanh(x @ second)
    return x


def u_shaped(engine: Any, weights: Any, x: Any) -> Any:
    """Skip connections from the first half to the second: no cut is crossed by one value alone."""
    half, skipped = len(weights) // 2, []
    for w in weights[:half]:
        x = engine.tanh(x @ w)
        skipped.append(x)
    for w in weights[half:]:
        x = engine.tanh(x @ w) + skipped.pop()
    return x


def shared(engine: Any, weights: Any, x: Any) -> Any:
    """One weight in eight layers, whose contributions add up; and a value read twice."""
    (w,) = weights
    for _ in range(8):
        x = engine.tanh(x @ w)
    return x * x


def dense(engine: Any, weights: Any, x: Any) -> Any:
    """Each layer reads the two before it."""
    values = [x, engine.tanh(x)]
    for w in weights:
        before, last = [*pairwise(values)][-1]
        values.append(engine.tanh(last @ w + before))
    return values[-1]


# Of each: its layers, and how many weights they take.
NETWORKS: dict[str, tuple[Network, int]] = {
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
