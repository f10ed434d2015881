"""XLA's compile-time memory analysis of a JAX function, for comparison with predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from tinyckpt.base.units import size_text


@dataclass(frozen=True, slots=True)
class Memory:
    """XLA's buffer assignment for one call of a function, in bytes.

    Attributes:
        temporary: total temporaries, where one buffer may be reused for several values.
        output: results.
        flops: floating-point operations by XLA's cost analysis; 0 where it reports none.

    >>> found = Memory(temporary=2048, output=1024, flops=0.0)
    >>> found.peak
    3072
    >>> print(found)
    3.0 KiB: 2.0 KiB of temporaries, 1.0 KiB of results
    """

    temporary: int
    output: int
    flops: float

    @property
    def peak(self) -> int:
        """Temporaries and results, the number to compare with the peak of a replay."""
        return self.temporary + self.output

    def __str__(self) -> str:
        temporary, output = size_text(self.temporary), size_text(self.output)
        return f"{size_text(self.peak)}: {temporary} of temporaries, {output} of results"


def memory(function: Callable[..., Any], *args: Any) -> Memory:
    """Compile a function with ``jax.jit`` and report XLA's ``memory_analysis``; nothing runs.

    On a CPU XLA saves memory neither for ``jax.checkpoint`` nor for a schedule, unless
    ``XLA_FLAGS`` has ``--xla_cpu_enable_concurrency_optimized_scheduler=false`` before JAX is
    imported.

    Args:
        function: such as ``jax.value_and_grad(loss)``, or the result of ``step``.
        args: arrays, or ``jax.ShapeDtypeStruct``.

    >>> import jax
    >>> found = memory(lambda x: x @ x, jax.ShapeDtypeStruct((8, 8), "float32"))
    >>> found.output
    256
    """
    compiled = jax.jit(function).lower(*args).compile()
    found: Any = compiled.memory_analysis()
    costs: Any = compiled.cost_analysis()
    costs = costs[0] if isinstance(costs, list) and costs else costs
    flops = float(costs.get("flops", 0.0)) if costs else 0.0
    return Memory(int(found.temp_size_in_bytes), int(found.output_size_in_bytes), flops)
