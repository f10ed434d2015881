"""Selective activation checkpointing of a JAX function by equation, without names in its source.

In: a function and the positions of equations. Out: the same function, where the backward pass reads
the saved results and recomputes all others. The jaxpr is cut into segments wherever every live
value is saved, each under a ``jax.checkpoint`` of its own; a ``scan`` stands between segments, and
its body is treated alike, so that only its carries and what is saved in it are stored per
iteration.

A policy of ``jax.checkpoint`` is asked about primitives, not about equations. So a saved equation
reads an operand that ``checkpoint_name`` has tagged, and ``SaveTagged`` saves what follows a tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.jax.capture import DIFFERENTIATED, bind, flattened, read_all, variables

Path = tuple[int, ...]  # position of an equation; in the body of a scan, after that of the scan
TAG, RESULT = "tinyckpt: save the next", "tinyckpt: save this"


class SaveTagged:
    """Checkpoint policy: saves the result that follows a tag. The tag precedes its equation."""

    def __init__(self) -> None:
        self.is_next = False

    def __call__(self, primitive: Any, *_: Any, **params: Any) -> bool:
        """Return whether the equation is to be saved; called in the order of the equations."""
        name = params.get("name") if primitive.name == "name" else None
        saved, self.is_next = self.is_next or name == RESULT, name == TAG
        return saved


def checkpointed(fun: Callable[..., Any], saved: Mapping[Path, str]) -> Callable[..., Any]:
    """Return the function with everything recomputed in the backward pass but some results.

    Args:
        fun: any function of arrays.
        saved: the equations whose results are saved: their primitives' names, by position.

    Raises:
        GraphError: when called, if the function's equations at those positions are others.

    >>> import jax.numpy as jnp
    >>> wrapped = checkpointed(lambda w: jnp.sin(jnp.cos(w)).sum(), {(0,): "cos"})
    >>> jax.grad(wrapped)(jnp.zeros(2)).tolist() == [0, 0]
    True
    """

    def run(*args: Any) -> Any:
        with jax.disable_jit(False):  # which would unroll loops: other equations than advised on
            closed, shape = jax.make_jaxpr(fun, return_shape=True)(*args)
        there = {
            (*path, at): equation.primitive.name
            for path, flat in levels(closed)
            for at, equation in enumerate(flat.jaxpr.eqns)
        }
        for place, kind in saved.items():
            if there.get(place) != kind:
                raise GraphError(
                    f"equation {place} is {there.get(place, 'missing')}; the advice was given for "
                    f"a function where it is {kind}; expected the function passed to advise"
                )
        results = evaluate(closed, jax.tree.leaves(args), saved, (), True)
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return run


def levels(closed: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the flattened jaxpr and, nested to any depth, those of its scans, with their paths."""
    flat = flattened(closed, "the function", DIFFERENTIATED)
    yield path, flat
    for at, equation in enumerate(flat.jaxpr.eqns):
        if equation.primitive.name == "scan":
            yield from levels(equation.params["jaxpr"], (*path, at))


def evaluate(
    closed: Any, arguments: Sequence[Any], saved: Mapping[Path, str], path: Path, prevent_cse: bool
) -> list[Any]:
    """Evaluate a jaxpr segment by segment; return its results."""
    flat = flattened(closed, "the function", DIFFERENTIATED)
    jaxpr, kept = flat.jaxpr, {place[-1] for place in saved if place[:-1] == path}
    values = dict(zip(jaxpr.constvars, flat.consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    for begin, end, needed, made in segments(jaxpr, kept):
        equation = jaxpr.eqns[begin]
        if equation.primitive.name == "scan":
            operands = read_all(values, equation.invars)
            results = scan(equation, operands, saved, (*path, begin))
        else:

            def segment(
                *inputs: Any, begin: int = begin, end: int = end, needed: Any = needed,
                made: Any = made,
            ) -> list[Any]:  # fmt: skip
                inside = dict(zip(needed, inputs, strict=True))
                for place in range(begin, end):
                    run_equation(jaxpr.eqns[place], inside, place in kept)
                return read_all(inside, made)

            wrapped = jax.checkpoint(segment, policy=SaveTagged(), prevent_cse=prevent_cse)
            results = wrapped(*read_all(values, needed))
        values.update(zip(made, results, strict=True))
    return read_all(values, jaxpr.outvars)


def segments(jaxpr: Any, kept: set[int]) -> Iterator[tuple[int, int, list[Any], list[Any]]]:
    """Cut a jaxpr wherever all live values are saved: first equation, end, inputs, outputs."""
    equations = jaxpr.eqns
    scans = {at for at, found in enumerate(equations) if found.primitive.name == "scan"}
    producer = {value: at for at, found in enumerate(equations) for value in found.outvars}
    last = {value: at for at, found in enumerate(equations) for value in variables(found.invars)}
    last |= dict.fromkeys(variables(jaxpr.outvars), len(equations))
    cuts, live = {0, len(equations), *scans, *(at + 1 for at in scans)}, set[Any]()
    for at, equation in enumerate(equations):
        live = {value for value in (*live, *equation.outvars) if last.get(value, -1) > at}
        if live and all(producer[value] in kept | scans for value in live):
            cuts.add(at + 1)
    for begin, end in pairwise(sorted(cuts)):
        inside = equations[begin:end]
        reads = dict.fromkeys(value for found in inside for value in variables(found.invars))
        made = [value for found in inside for value in found.outvars]
        if begin not in scans:  # whose outputs are all bound, also those that nobody reads
            made = [value for value in made if last.get(value, -1) >= end]
        yield begin, end, [value for value in reads if producer.get(value, -1) < begin], made


def run_equation(equation: Any, values: dict[Any, Any], is_saved: bool) -> None:
    """Evaluate one equation, tagged if its results are saved.

    ``custom_jvp`` and ``custom_vjp`` become several equations when they are differentiated, so
    their results are tagged, not their operands.
    """
    operands = read_all(values, equation.invars)
    is_custom = equation.primitive.name.startswith("custom_")
    places = [at for at, value in enumerate(equation.invars) if not isinstance(value, Literal)]
    if is_saved and places and not is_custom:
        operands[places[0]] = checkpoint_name(operands[places[0]], TAG)
    results = bind(equation, operands)
    if is_saved and is_custom:
        results = [checkpoint_name(result, RESULT) for result in results]
    values.update(zip(equation.outvars, results, strict=True))


def scan(equation: Any, operands: list[Any], saved: Mapping[Path, str], path: Path) -> list[Any]:
    """Run a ``scan`` whose body is checkpointed.

    Its barriers are left out: forward and backward pass are loops of their own, which XLA never
    merges.
    """
    params, body_jaxpr = equation.params, equation.params["jaxpr"]
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, init, sliced = operands[:first], operands[first:second], operands[second:]

    def body(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = evaluate(body_jaxpr, [*consts, *carry, *slices], saved, path, False)
        return results[: len(carry)], results[len(carry) :]

    carry, stacked = jax.lax.scan(
        body, init, sliced, length=params["length"], reverse=params["reverse"],
        unroll=params["unroll"],
    )  # fmt: skip
    return [*carry, *stacked]
