"""JAX functions: their value_and_grad as graphs that plan. Extra ``jax``. **Experimental.**

::

    from tinyckpt.interop import jax as tcj

    traced = tcj.trace(loss, params, x)              # no array is computed
    advice = tcj.advise(loss, params, x, budget=0.5)
    print(advice)                                    # which names to save, and what to write

Experimental since XLA, not this library, says in the end what is held when: it fuses operators so
that values are never written, reorders them, and merges what is computed twice unless a barrier
forbids it. What is predicted here is the memory of a program whose operators run one after another
and write their results. ``memory`` asks XLA what it will take, to stand beside it.
"""

from tinyckpt.interop.frameworks import check_installed

check_installed("jax", "JAX")  # before what follows fails for want of it, with less of a clue

from tinyckpt.interop.jax.advising import Advice, advise
from tinyckpt.interop.jax.memory import Memory, memory
from tinyckpt.interop.jax.stepping import step
from tinyckpt.interop.jax.tracing import Traced, trace

__all__ = ["Advice", "Memory", "Traced", "advise", "memory", "step", "trace"]
