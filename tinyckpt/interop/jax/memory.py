"""What XLA says that a program will take: ``memory``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from tinyckpt.base.units import size_text


@dataclass(frozen=True, slots=True)
class Memory:
    """What XLA's compiler plans for one call of a function, in bytes.

    Attributes:
        temporary: of values in between, all together, where one may stand in another's place.
        output: of results.
        flops: floating-point operations as XLA counts them; 0 where it does not say.
    """

    temporary: int
    output: int
    flops: float

    @property
    def peak(self) -> int:
        """What stands beside the peak of a replay: values in between, and results."""
        return self.temporary + self.output

    def __str__(self) -> str:
        return f"{size_text(self.peak)}: {size_text(self.temporary)} besides results"


def memory(function: Callable[..., Any], *args: Any) -> Memory:
    """Return what XLA takes for a function under ``jax.jit``, by its ``memory_analysis``.

    The function is compiled, not run. XLA on a CPU saves memory neither for ``jax.checkpoint`` nor
    for a schedule, unless ``XLA_FLAGS`` has
    ``--xla_cpu_enable_concurrency_optimized_scheduler=false`` before JAX is imported.

    Args:
        function: such as ``jax.value_and_grad(loss)``, or what ``step`` returned.
        args: arrays, or ``jax.ShapeDtypeStruct``.
    """
    compiled = jax.jit(function).lower(*args).compile()
    found: Any = compiled.memory_analysis()
    costs: Any = compiled.cost_analysis()
    costs = costs[0] if isinstance(costs, list) and costs else costs
    flops = float(costs.get("flops", 0.0)) if costs else 0.0
    return Memory(int(found.temp_size_in_bytes), int(found.output_size_in_bytes), flops)
