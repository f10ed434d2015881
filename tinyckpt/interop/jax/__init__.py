"""Rematerialization for JAX: advice on what to recompute, measured by XLA; graphs to plan on.

::

    from tinyckpt.interop import jax as tcj

    advice = tcj.advise(loss, params, x, budget=0.5)   # the function as it is; no array is computed
    step = jax.jit(jax.value_and_grad(advice.apply(loss)), compiler_options=advice.compiler_options)

Extra ``jax``. **Experimental.** XLA decides what is resident: it fuses operators, reorders them and
merges duplicates. So ``advise`` predicts no memory: it compiles candidates, which
planners propose, and reports XLA's buffer assignment, as ``memory`` does for any function. The
graph of ``trace`` is for planning, pictures and teaching; its peaks are not XLA's.
"""

from tinyckpt.interop.importer_checks import check_installed

check_installed("jax", "JAX")  # first: the imports below would fail with a less helpful error

from tinyckpt.interop.jax.advising import Advice, advise
from tinyckpt.interop.jax.memory import Memory, memory
from tinyckpt.interop.jax.tracing import Traced, trace

__all__ = ["Advice", "Memory", "Traced", "advise", "memory", "trace"]
