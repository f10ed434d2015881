"""Just-in-time compilation: a schedule as a function, in new arrays or in one buffer.

In: a legal schedule and a backend. Out: ``Compiled``, a function with its source. The source is
that of ``numpy_source``, or with an arena that of ``arena_program``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tinyckpt.base.display import html_escaped
from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.codegen.arena_program import ArenaProgram
from tinyckpt.codegen.numpy_source import plain_program
from tinyckpt.core.backend import NUMPY, Backend, bind_sources, get_backend, to_backend
from tinyckpt.core.execute import execute
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.ops.update_steps import updated_sources


@dataclass(frozen=True, slots=True, repr=False)
class Compiled:
    """A compiled schedule: call it with the arguments of the traced function.

    >>> import numpy as np, tinyckpt as tc
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(x * x), tc.Spec((2,))))
    >>> program = tc.compile(tc.plan(graph))
    >>> program(np.array([1.0, 2.0]))
    (array(5.), array([2., 4.]))
    >>> program
    <Compiled store_all of <lambda>, 14 lines>

    Attributes:
        source: the program's text.
        function: the program as a Python function, without argument checks.
        schedule: the schedule that it was compiled from.
        constants: the constant arrays that the program refers to.
        backend: the library that it runs on; arguments are converted to it.
        arena: the program on one buffer, if it was compiled so: ``arena.nbytes``.
    """

    source: str
    function: Callable[..., Any] = field(repr=False)
    schedule: Schedule = field(repr=False)
    constants: tuple[Any, ...] = field(default=(), repr=False)
    backend: Backend = field(default=NUMPY, repr=False)
    arena: ArenaProgram | None = field(default=None, repr=False)

    def __call__(self, *args: Any) -> tuple[Any, Any]:
        """Return (value, gradients), in the nesting of the function's result and arguments.

        A one-element result may be a view, or share memory with another result, an argument or a
        constant: ``value_and_grad`` copies these. All other results own their memory, unless they
        are reused (``arena``).

        Raises:
            GraphError: if an argument has another shape or dtype than the graph was built for.
        """
        graph = self.schedule.graph
        arrays = bind_sources(graph, args)
        return self.evaluate(
            *map_leaves(lambda data: to_backend(self.backend, arrays[data]), graph.arguments)
        )

    def __repr__(self) -> str:
        lines = self.source.count("\n")
        return f"<Compiled {self.schedule.policy} of {self.schedule.graph.name}, {lines} lines>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the program for a notebook, folded."""
        summary, source = html_escaped(repr(self)), html_escaped(self.source)
        shown = f"<details><summary>{summary}</summary><pre>{source}</pre></details>"
        return {"text/plain": repr(self), "text/html": shown}

    def evaluate(self, *arrays: Any) -> tuple[Any, Any]:
        """Call the program with checked arrays; if a kernel fails, find out which.

        Raises:
            BackendError: if a kernel fails; names step and operator.
        """
        try:
            result: tuple[Any, Any] = self.function(*arrays)
        except MemoryError:
            raise
        except Exception as error:
            ids = leaves(self.schedule.graph.arguments)
            sources = dict(zip(ids, leaves(arrays), strict=True))
            for data in updated_sources(self.schedule.graph):
                sources[data] = sources[data].copy()
            # The program has no checks. ``execute`` has, and fails at the same step.
            execute(self.schedule, sources, self.backend)
            raise BackendError(f"{self.schedule.graph.name} failed: {error}") from error
        return result

    def __str__(self) -> str:
        return self.source

    def __reduce__(self) -> Any:
        """Pickle the schedule and the backend; unpickling compiles again."""
        if self.arena is None:
            return compile, (self.schedule, self.backend)
        options = (True, self.arena.results, self.arena.threads)
        return compile, (self.schedule, self.backend, *options)


@short_traceback
def compile(
    schedule: Schedule,
    backend: str | Backend = "numpy",
    arena: bool = False,
    results: Literal["new", "reused"] = "new",
    threads: Literal["wait", "own"] = "wait",
) -> Compiled:
    """Compile a schedule to a Python function over NumPy or CuPy.

    With ``arena=True`` every value and workspace has a static address in one buffer, and each line
    writes into its place by ``out=``: after the first call, which finds the layouts, values are no
    longer allocated. What ``arena_program`` names still is, and so are NumPy's own buffers.
    Many steps gain nothing by that, and some lose (benchmarks/results/arena_step.md), so it is
    never the default.

    Args:
        schedule: a legal schedule.
        backend: ``numpy``, ``cupy``, or a ``Backend`` instance.
        arena: whether to run in one buffer.
        results: with an arena, whether results are ``new`` arrays in every call, outside of the
            buffer; or stand in it and are ``reused``, overwritten by the next call.
        threads: with an arena, whether calls from several threads ``wait`` for each other, or each
            thread has a buffer of its ``own``.

    >>> import tinyckpt as tc
    >>> print(tc.compile(tc.plan(tc.networks.chain(2), "store_all")).source)
    import numpy as np
    from tinyckpt.ops.kernels_elementwise import tanh_vjp
    <BLANKLINE>
    c_1_0 = np.array(1.0, 'float64')
    <BLANKLINE>
    def step(x):
        f1 = np.tanh(x)
        f2 = np.tanh(f1)
        l = c_1_0 * f2
        b2 = tanh_vjp(np, f2, l)
        del f2, l
        b1 = tanh_vjp(np, f1, b2)
        del f1, b2
        return None, b1
    >>> program = tc.compile(tc.plan(tc.networks.chain(2), "store_all"), arena=True)
    >>> for line in program.source.splitlines()[-9:]:
    ...     print(line)
    def step(x):
        np.tanh(x, out=f1)
        np.tanh(f1, out=f2)
        np.multiply(c_1_0, f2, out=l)
        np.multiply(f2, f2, out=b2)
        np.subtract(c_1, b2, out=b2)
        np.multiply(b2, l, out=b2)
        b1 = tanh_vjp_into_b1(f1, b2)
        return None, b1
    >>> program.arena.nbytes
    2048

    Raises:
        BackendError: if an operator is abstract, or the backend is not available.
        OptionError: if an option is unknown.
        ScheduleError: if the schedule is illegal.
    """
    if not isinstance(arena, bool):
        raise OptionError(f"arena={arena!r:.80}; expected True or False")
    library = get_backend(backend)
    if not arena:
        replay(schedule)  # checks it, as planning the buffer does
        if (results, threads) != ("new", "wait"):
            raise OptionError("results and threads are options of arena=True")
        source, function, constants = plain_program(schedule, library)
        return Compiled(source, function, schedule, constants, library)
    program = ArenaProgram(schedule, library, results, threads)
    return Compiled(program.source, program, schedule, program.constants, library, program)
