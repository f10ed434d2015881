"""Networks with memory-sharing norms and 2-bit activations, and parameters there and back.

A norm's scale and shift go into the weights and biases of the linear layers that read it. Then the
norm has no parameters, returns what those layers keep, and keeps the same value itself. With scale
s and shift t, and a layer ``y w + b``:

    w' = diag(s) w            b' = b + t w
    dw = diag(s) dw' + t db'  ds = sum over outputs of dw' w      dt = w db'

This is exact: loss and gradients are the same but for rounding. The merged parameters are others,
and so an optimiser's steps on them are, too; training them is training another parameterisation.
What takes the place of gelu and silu has the same values, and approximate gradients.

Source: Yang et al., "Reducing fine-tuning memory overhead by approximate and memory-sharing
backpropagation", ICML 2024, arXiv 2406.16282, section 5. Not here: norms behind which a residual is
read, as in BERT; they are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tinyckpt.approx.calling import Replacement, call_graph
from tinyckpt.approx.finding import Merge, NotMergeableError, merge_of, norms_of
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Template, Tree, leaves, leaves_like, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.primitive import apply_all
from tinyckpt.core.tracing import Var, build, function_name, spec_of
from tinyckpt.networks.network import Network
from tinyckpt.ops.approximate import REGELU2, RESILU2
from tinyckpt.ops.fits import checked_fit
from tinyckpt.ops.memory_sharing import MS_LAYER_NORM, MS_RMS_NORM

SHARING = {"layer_norm": MS_LAYER_NORM, "rms_norm": MS_RMS_NORM}
# From a fit and an input to the activation with an approximate derivative.
ACTIVATIONS: dict[str, Callable[..., tuple[Var, ...]]] = {
    "gelu": lambda fit, x: apply_all(REGELU2, x, approximate=False, fit=fit),
    "gelu_tanh": lambda fit, x: apply_all(REGELU2, x, approximate=True, fit=fit),
    "silu": lambda fit, x: apply_all(RESILU2, x, fit=fit),
}
MOST_NAMED = 3  # norms that an error lists


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A network, rewritten, and the way from its parameters to the others' and back.

    Attributes:
        original: the network as it was.
        network: the rewritten one. Its parameters have the nesting of the others, with None where a
            norm's were.
        norms: names of the norms that share memory now.
        activations: names of the activations whose derivative is a step function now.
        left: names of the norms that stayed as they were, each with why.
    """

    original: Network
    network: Network
    norms: tuple[str, ...]
    activations: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    _merges: tuple[Merge, ...] = field(repr=False)
    _parameters: Template = field(repr=False)
    _merged: Template = field(repr=False)

    def merged(self, params: Tree) -> Tree:
        """Return the parameters of the rewritten network that make it compute the same."""
        values = by_id(self._parameters, params)
        for merge in self._merges:
            for linear in merge.linears:
                weight = as_read(values[linear.weight], linear.transposed)
                if linear.bias is not None and merge.shift is not None:
                    bias = values[linear.bias] + values[merge.shift] @ weight
                    values[linear.bias] = bias.astype(values[linear.bias].dtype)
                if merge.scale is not None:
                    scaled = values[merge.scale][:, None] * weight
                    values[linear.weight] = as_read(scaled, linear.transposed).astype(weight.dtype)
        return map_leaves(values.__getitem__, self._merged)

    def unmerged(self, merged: Tree) -> Tree:
        """Return parameters of the original: norms get a scale of 1 and a shift of 0."""
        values = by_id(self._merged, merged)
        scales = {merge.scale for merge in self._merges}
        for data, spec in by_id(self._parameters, self.original.specs[0]).items():
            values.setdefault(data, np.full(spec.shape, data in scales, spec.dtype))
        return map_leaves(values.__getitem__, self._parameters)

    def gradients(self, merged: Tree, params: Tree) -> Tree:
        """Return the gradients of the network as it was, given those of the rewritten one.

        Args:
            merged: gradients of the rewritten network's loss, at ``self.merged(params)``.
            params: the parameters that were merged.
        """
        values, found = by_id(self._parameters, params), by_id(self._merged, merged)
        for merge in self._merges:
            to_scale: Any = 0
            to_shift: Any = 0
            for linear in merge.linears:
                weight = as_read(values[linear.weight], linear.transposed)
                slope = as_read(found[linear.weight], linear.transposed)
                if merge.scale is not None:
                    to_scale = to_scale + (slope * weight).sum(1)
                    slope = values[merge.scale][:, None] * slope
                if linear.bias is not None and merge.shift is not None:
                    to_shift = to_shift + weight @ found[linear.bias]
                    slope = slope + values[merge.shift][:, None] * found[linear.bias]
                found[linear.weight] = as_read(slope, linear.transposed).astype(weight.dtype)
            for data, total in ((merge.scale, to_scale), (merge.shift, to_shift)):
                if data is not None:
                    found[data] = total.astype(values[data].dtype)
        return map_leaves(found.__getitem__, self._parameters)


def as_read(weight: Any, transposed: bool) -> Any:
    """Return a weight with an axis of inputs, then one of outputs; and the other way round."""
    return weight.T if transposed else weight


def by_id(template: Template, tree: Tree) -> dict[int, Any]:
    """Return the arrays of a tree by what the template calls them."""
    return {data: leaf for data, _, leaf in leaves_like(template, tree, "params")}


def rewrite(
    what: Network | Callable[..., Any],
    *specs: Any,
    norms: str | None = "all",
    fit: str | None = "published",
) -> Rewriting:
    """Return a network that keeps less for its backward half, with memory-sharing norms.

    >>> import numpy as np, tinyckpt as tc
    >>> network = tc.networks.vit(2, 8, 2, size=8, patch=4, classes=3, dtype="float64")
    >>> rewriting = tc.rewrite(network, fit=None)
    >>> rewriting.norms
    ('layer_norm_1', 'layer_norm_2', 'layer_norm_3', 'layer_norm_4', 'layer_norm_5')
    >>> params, *data = network.arrays()
    >>> value, found = tc.value_and_grad(rewriting.network.loss)(rewriting.merged(params), *data)
    >>> exact, expected = tc.value_and_grad(network.loss)(params, *data)
    >>> back = rewriting.gradients(found, params)
    >>> bool(np.allclose(value, exact)), bool(np.allclose(back["head"]["w"], expected["head"]["w"]))
    (True, True)

    Args:
        what: a network; or a function, whose first argument holds the parameters.
        specs: of a function's arguments: arrays or ``tc.Spec``, in their nesting.
        norms: ``"all"``: layer norms and RMS norms are merged into the linear layers that read
            them, and an error names those that cannot be. ``"possible"`` leaves these as they are.
            None leaves all.
        fit: of ReGELU2 and ReSiLU2, which take the place of gelu and silu; see ``tc.regelu2``.
            None leaves them: then gradients are exact.

    Raises:
        GraphError: if a norm feeds something besides linear layers, such as the residual behind it
            in BERT, if its parameters or theirs are read elsewhere, too, as a tied embedding; if
            it has a shift, and a layer no bias; or if there is nothing to rewrite.

    Source: Yang et al., arXiv 2406.16282.
    """
    if norms not in ("all", "possible", None):
        raise GraphError(f"rewrite: norms={norms!r}; legal are 'all', 'possible' and None")
    fit = None if fit is None else checked_fit("rewrite", fit)
    network = network_of("rewrite", what, specs)
    graph = build(network.loss, *network.specs, graph_name=network.name)
    if graph.updates:
        raise GraphError(f"rewrite: {graph.name} updates its arguments; rewrite the loss instead")
    merges, left = merges_of(graph) if norms else ((), ())
    if norms == "all" and left:
        raise GraphError(refusal(graph, left))
    coded = [op for op in graph.operators if fit is not None and op.kind in ACTIVATIONS]
    if not merges and not coded:
        raise GraphError(
            f"rewrite: in {graph.name} is nothing to rewrite with norms={norms!r}, fit={fit!r}"
        )
    gone = {data for merge in merges for data in (merge.scale, merge.shift)}
    merged = map_leaves(lambda data: None if data in gone else data, graph.arguments[0])
    return Rewriting(
        network,
        rewritten(graph, network, merged, replacements_of(graph, merges, coded, fit)),
        tuple(graph.operators[merge.norm].name for merge in merges),
        tuple(operator.name for operator in coded),
        left,
        merges,
        graph.arguments[0],
        merged,
    )


def replacements_of(
    graph: Graph, merges: tuple[Merge, ...], coded: list[Operator], fit: str | None
) -> dict[int, Replacement]:
    """Return what stands in the place of merged norms and of activations, by operator."""
    found: dict[int, Replacement] = {
        merge.norm: partial(plain_norm, graph.operators[merge.norm]) for merge in merges
    }
    for operator in coded:
        found[operator.id] = partial(ACTIVATIONS[operator.kind], fit)
    return found


def rewritten(
    graph: Graph, network: Network, merged: Template, replacements: dict[int, Replacement]
) -> Network:
    """Return the network that calls a graph with other operators in the place of some."""
    templates = (merged, *graph.arguments[1:])

    def loss(*args: Any) -> Any:
        pairs = leaves_like(templates, args, "the arguments")
        return call_graph(graph, {data: leaf for data, _, leaf in pairs}, replacements)

    loss.__name__ = function_name(network.loss)
    specs = tuple(map_leaves(lambda data: graph.data[data].spec, tree) for tree in templates)
    return Network(network.name, loss, specs)


def network_of(asker: str, what: Network | Callable[..., Any], specs: tuple[Any, ...]) -> Network:
    """Return a network, or a function and specs of its arguments as one.

    Raises:
        GraphError: if it is neither, or has no specs; in the name of who asks.
    """
    if isinstance(what, Network):
        if specs:
            raise GraphError(f"{asker}: {what.name} has specs of its own; give none besides")
        return what
    if not callable(what):
        raise GraphError(f"{asker}: expected a Network or a function, got a {type(what).__name__}")
    name = function_name(what)
    if not specs:
        raise GraphError(
            f"{asker}: {name} needs its arguments, arrays or specs, with the parameters first"
        )
    own = tuple(
        map_leaves(partial(spec_of, f"argument {position} of {name}"), argument)
        for position, argument in enumerate(specs)
    )
    return Network(name, what, own)


def merges_of(graph: Graph) -> tuple[tuple[Merge, ...], tuple[tuple[str, str], ...]]:
    """Return the norms that can be merged, and the names of the others, each with why not."""
    parameters = frozenset(leaves(graph.arguments[0]))
    merges, left = [], []
    for norm in norms_of(graph):
        try:
            merges.append(merge_of(graph, norm, parameters))
        except NotMergeableError as error:
            left.append((norm.name, str(error)))
    return tuple(merges), tuple(left)


def refusal(graph: Graph, left: tuple[tuple[str, str], ...]) -> str:
    """Return what an error says of norms that cannot be merged."""
    named = "; ".join(f"{name}: {why}" for name, why in left[:MOST_NAMED])
    more = f"; and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    return (
        f"rewrite: of {graph.name}, norms cannot be merged into linear layers: {named}{more}; "
        "norms='possible' leaves these as they are, norms=None all"
    )


def plain_norm(norm: Operator, x: Var, *affine: Any) -> tuple[Var, ...]:
    """Add the memory-sharing norm in the place of one whose scale and shift have gone."""
    attrs = {key: norm.attrs[key] for key in ("axes", "epsilon", "centred")}
    return apply_all(SHARING[norm.kind], x, **attrs)
