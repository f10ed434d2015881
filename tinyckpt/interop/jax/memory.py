"""XLA's compile-time memory analysis of a JAX function: the buffers that it assigns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from tinyckpt.base.units import size_text


@dataclass(frozen=True, slots=True)
class Memory:
    """XLA's buffer assignment for one call of a function, in bytes.

    Attributes:
        temporary: total temporaries, where one buffer may be reused for several values.
        output: results, except those that take the place of donated arguments.
        arguments: arguments, which are resident in any case and not part of the peak.

    >>> found = Memory(temporary=2048, output=1024, arguments=512)
    >>> found.peak
    3072
    >>> print(found)
    3.0 KiB: 2.0 KiB of temporaries, 1.0 KiB of results
    """

    temporary: int
    output: int
    arguments: int

    @property
    def peak(self) -> int:
        """Temporaries and results: what a call allocates."""
        return self.temporary + self.output

    def __str__(self) -> str:
        temporary, output = size_text(self.temporary), size_text(self.output)
        return f"{size_text(self.peak)}: {temporary} of temporaries, {output} of results"


def memory(
    function: Callable[..., Any], *args: Any, compiler_options: Mapping[str, Any] | None = None
) -> Memory:
    """Compile a function with ``jax.jit`` and report XLA's ``memory_analysis``; nothing runs.

    Args:
        function: such as ``jax.value_and_grad(loss)``.
        args: arrays, or ``jax.ShapeDtypeStruct``.
        compiler_options: as ``jax.jit`` takes them.

    >>> import jax
    >>> memory(lambda x: x @ x, jax.ShapeDtypeStruct((8, 8), "float32")).output
    256
    """
    return compiled_memory(jax.jit(function).lower(*args), compiler_options or {})


def compiled_memory(lowered: Any, compiler_options: Mapping[str, Any]) -> Memory:
    """Compile a lowered function with some options and report XLA's ``memory_analysis``."""
    found = lowered.compile(compiler_options=dict(compiler_options)).memory_analysis()
    return Memory(
        int(found.temp_size_in_bytes),
        int(found.output_size_in_bytes - found.alias_size_in_bytes),
        int(found.argument_size_in_bytes),
    )
