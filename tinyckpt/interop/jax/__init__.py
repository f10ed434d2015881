"""Rematerialization for JAX: plan ``value_and_grad`` graphs, choose which named values to save.

::

    from tinyckpt.interop import jax as tcj

    traced = tcj.trace(loss, params, x)              # no array is computed
    advice = tcj.advise(loss, params, x, budget=0.5)
    print(advice)                                    # which names to save, and the code to write

Extra ``jax``. **Experimental**, since XLA, not this library, decides in the end which buffers are
live when: it fuses operators so that values are never written to memory, reorders them, and merges
duplicates (CSE) unless a barrier forbids it. The peak predicted here is that of a program whose
operators run one after another and write their results. ``memory`` asks XLA for its own buffer
assignment, for comparison.
"""

from tinyckpt.interop.importer_checks import check_installed

check_installed("jax", "JAX")  # first: the imports below would fail with a less helpful error

from tinyckpt.interop.jax.advising import Advice, advise
from tinyckpt.interop.jax.execute_schedule import step
from tinyckpt.interop.jax.memory import Memory, memory
from tinyckpt.interop.jax.tracing import Traced, trace

__all__ = ["Advice", "Memory", "Traced", "advise", "memory", "step", "trace"]
