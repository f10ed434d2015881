"""Approximate and memory-sharing backpropagation (Yang et al. 2024) as a graph rewrite.

Activations get 2-bit approximate derivatives, and norms share memory with linear layers: a norm's
scale and shift are folded into the weights and biases of the linear layers that read it. Then the
norm has no parameters, and saves its output, which those layers save anyway: one value instead of
two. With scale s and shift t, and a layer ``y w + b``:

    w' = diag(s) w            b' = b + t w
    dw = diag(s) dw' + t db'  ds = sum over outputs of dw' w      dt = w db'

This is exact: loss and gradients are the same but for rounding. Training the merged parameters is
training a reparameterised network: an optimiser's steps on them differ. The replacements of gelu
and silu (ReGELU2, ReSiLU2) have the same values, and approximate gradients.

Source: Yang et al., "Reducing fine-tuning memory overhead by approximate and memory-sharing
backpropagation", ICML 2024, arXiv 2406.16282, section 5. Not here: norms whose output is also read
by a residual connection, as in BERT (post-norm); they are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tinyckpt.base.calls import function_name
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Template, Tree, leaves, leaves_like, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import Var, apply_all, build
from tinyckpt.networks.network import Network
from tinyckpt.ops.approximate_activations import REGELU2, RESILU2
from tinyckpt.ops.gelu_silu_fits import checked_fit
from tinyckpt.ops.memory_sharing_norms import MS_LAYER_NORM, MS_RMS_NORM
from tinyckpt.techniques.inline_graph import Replacement, call_graph, network_of
from tinyckpt.techniques.match_norms import Merge, NotMergeableError, merge_of, norms_of

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
    """A rewritten network, with the maps between its parameters and the original's.

    Attributes:
        original: the network before.
        network: the rewritten one. Its parameters have the same nesting, with None in the place of
            a folded norm's.
        norms: names of the norms that share memory now.
        activations: names of the activations whose derivative is a step function now.
        left: names of the norms that are unchanged, each with the reason.

    >>> import numpy as np, tinyckpt as tc
    >>> network = tc.networks.vit(1, 8, 2, size=8, patch=4, classes=3, dtype="float64")
    >>> rewriting = tc.rewrite(network, fit=None)
    >>> params, *_ = network.arrays()
    >>> merged = rewriting.merged(params)
    >>> again = rewriting.merged(rewriting.unmerged(merged))
    >>> bool(np.allclose(again["head"]["w"], merged["head"]["w"]))
    True
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
        """Fold parameters of the original into the equivalent ones of the rewritten network."""
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
        """Map parameters back to the original network: norms get a scale of 1 and a shift of 0."""
        values = by_id(self._merged, merged)
        scales = {merge.scale for merge in self._merges}
        for data, spec in by_id(self._parameters, self.original.specs[0]).items():
            values.setdefault(data, np.full(spec.shape, data in scales, spec.dtype))
        return map_leaves(values.__getitem__, self._parameters)

    def gradients(self, merged: Tree, params: Tree) -> Tree:
        """Map gradients of the rewritten network back to the original's parameters (chain rule).

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
    """Transpose a weight that the function transposes: to ``(inputs, outputs)``, and back."""
    return weight.T if transposed else weight


def by_id(template: Template, tree: Tree) -> dict[int, Any]:
    """Return the arrays of a tree by the data ids in its template."""
    return {data: leaf for data, _, leaf in leaves_like(template, tree, "params")}


def rewrite(
    what: Network | Callable[..., Any],
    *specs: Any,
    norms: str | None = "all",
    fit: str | None = "published",
) -> Rewriting:
    """Rewrite a network to save less for its backward pass (LowMemoryBP).

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
        norms: ``"all"``: layer norms and RMS norms are folded into the linear layers that read
            them, and an error names those that cannot be. ``"possible"`` leaves these unchanged.
            None leaves all unchanged.
        fit: of ReGELU2 and ReSiLU2, which replace gelu and silu; see ``tc.regelu2``. None leaves
            them: then gradients are exact.

    Raises:
        GraphError: if a norm has readers other than linear layers, such as a residual connection
            in BERT; if its parameters or theirs have other readers, such as a tied embedding; if
            it has a shift, and a layer has no bias; or if there is nothing to rewrite.

    Source: Yang et al., arXiv 2406.16282.
    """
    if norms not in ("all", "possible", None):
        raise GraphError(f"rewrite: norms={norms!r}; expected 'all', 'possible' or None")
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
            f"rewrite: {graph.name} has nothing to rewrite with norms={norms!r}, fit={fit!r}"
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
    """Return the replacements of merged norms and of activations, by operator id."""
    found: dict[int, Replacement] = {
        merge.norm: partial(plain_norm, graph.operators[merge.norm]) for merge in merges
    }
    for operator in coded:
        found[operator.id] = partial(ACTIVATIONS[operator.kind], fit)
    return found


def rewritten(
    graph: Graph, network: Network, merged: Template, replacements: dict[int, Replacement]
) -> Network:
    """Return the network that inlines a graph with replacements of operators."""
    templates = (merged, *graph.arguments[1:])

    def loss(*args: Any) -> Any:
        return call_graph(graph, args, replacements, template=templates)

    loss.__name__ = function_name(network.loss)
    specs = tuple(map_leaves(lambda data: graph.data[data].spec, tree) for tree in templates)
    return Network(network.name, loss, specs)


def merges_of(graph: Graph) -> tuple[tuple[Merge, ...], tuple[tuple[str, str], ...]]:
    """Return the norms that can be merged, and the names of the others with the reasons."""
    parameters = frozenset(leaves(graph.arguments[0]))
    merges, left = [], []
    for norm in norms_of(graph):
        try:
            merges.append(merge_of(graph, norm, parameters))
        except NotMergeableError as error:
            left.append((norm.name, str(error)))
    return tuple(merges), tuple(left)


def refusal(graph: Graph, left: tuple[tuple[str, str], ...]) -> str:
    """Return the error message about norms that cannot be merged."""
    named = "; ".join(f"{name}: {why}" for name, why in left[:MOST_NAMED])
    more = f"; and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    return (
        f"rewrite: of {graph.name}, norms cannot be merged into linear layers: {named}{more}; "
        "norms='possible' leaves these as they are, norms=None all"
    )


def plain_norm(norm: Operator, x: Var, *affine: Any) -> tuple[Var, ...]:
    """Apply the memory-sharing norm that replaces a norm whose affine part is folded."""
    attrs = {key: norm.attrs[key] for key in ("axes", "epsilon", "centred")}
    return apply_all(SHARING[norm.kind], x, **attrs)
