"""JAX's checkpoint policies (``jax.checkpoint_policies``): predicates that select saved residuals.

Source: ``jax.checkpoint_policies``, JAX documentation, "Control autodiff's saved values with
jax.checkpoint". Values that are not saveable are recomputed, once, when the backward pass first
reads them. Note the names: ``everything_saveable`` means no recomputation at all.

A value's name is the label that ``tc.name(x, label)`` gave it, as ``checkpoint_name`` does in JAX.
A "dot" is a ``matmul``. It has batch dimensions if both operands have more than two axes.

>>> import tinyckpt as tc
>>> def loss(x, w):
...     return tc.sum(tc.name(tc.sin(tc.tanh(tc.sin(x @ w))), "out"))
>>> graph = tc.differentiate(tc.build(loss, tc.Spec((2, 3)), tc.Spec((3, 4))), (0, 1))
>>> rules = tc.checkpoint_policies
>>> for rule in (rules.everything_saveable, rules.dots_saveable, rules.nothing_saveable):
...     print(rule.name, tc.replay(tc.plan(graph, "saveable", rule=rule)).recomputations)
everything_saveable 0
dots_saveable 2
nothing_saveable 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tinyckpt.base.errors import PolicyOptionError, did_you_mean
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.graph import DataNode, Graph, Operator
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.storage.offload_steps import insert_offloads

Predicate = Callable[[Graph, Operator, DataNode], bool]


@dataclass(frozen=True, slots=True)
class SavePolicy:
    """Checkpoint policy: which values are saveable on the device, and which in host memory.

    Attributes:
        name: JAX's name of the policy.
        saves: predicate (graph, operator, output value) of values saved on the device.
        offloads: predicate of values offloaded to host memory, or None.

    >>> import tinyckpt as tc
    >>> tc.checkpoint_policies.dots_saveable.name
    'dots_saveable'
    """

    name: str
    saves: Predicate
    offloads: Predicate | None = None


def is_dot(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the operator is a matrix product."""
    return operator.kind == "matmul"


def is_unbatched_dot(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the operator is a matrix product without batch dimensions."""
    ranks = [len(graph.data[data].spec.shape) for data in operator.inputs]
    return operator.kind == "matmul" and min(ranks) <= 2


def save_none(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Save nothing."""
    return False


def save_all(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Save everything."""
    return True


def is_one_of(names: Sequence[str], graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the value is labelled with one of the names."""
    return node.label in names


def is_none_of(names: Sequence[str], graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the value is unlabelled or labelled with another name."""
    return node.label not in names


def is_named_otherwise(
    names: Sequence[str], graph: Graph, operator: Operator, node: DataNode
) -> bool:
    """Whether the value is labelled, with none of the names."""
    return node.label is not None and node.label not in names


def is_either(
    first: Predicate, second: Predicate, graph: Graph, operator: Operator, node: DataNode
) -> bool:
    """Whether one of two predicates holds."""
    return first(graph, operator, node) or second(graph, operator, node)


everything_saveable = SavePolicy("everything_saveable", save_all)
nothing_saveable = SavePolicy("nothing_saveable", save_none)
dots_saveable = SavePolicy("dots_saveable", is_dot)
dots_with_no_batch_dims_saveable = SavePolicy("dots_with_no_batch_dims_saveable", is_unbatched_dot)


def save_only_these_names(*names: str) -> SavePolicy:
    """Save the values labelled with one of the names, and no others.

    >>> import tinyckpt as tc
    >>> rule = tc.checkpoint_policies.save_only_these_names("query", "key")
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.name(tc.sin(x), "key")), tc.Spec(3)))
    >>> tc.plan(graph, "saveable", rule=rule).note
    'save_only_these_names: 1 of 2 values may be saved'
    """
    return SavePolicy("save_only_these_names", partial(is_one_of, names))


def save_any_names_but_these(*names: str) -> SavePolicy:
    """Save the labelled values, except those labelled with one of the names.

    >>> import tinyckpt as tc
    >>> rule = tc.checkpoint_policies.save_any_names_but_these("scores")
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.name(tc.sin(x), "key")), tc.Spec(3)))
    >>> tc.plan(graph, "saveable", rule=rule).note
    'save_any_names_but_these: 1 of 2 values may be saved'
    """
    return SavePolicy("save_any_names_but_these", partial(is_named_otherwise, names))


def save_anything_except_these_names(*names: str) -> SavePolicy:
    """Save all values, labelled or not, except those labelled with one of the names.

    >>> import tinyckpt as tc
    >>> rule = tc.checkpoint_policies.save_anything_except_these_names("scores")
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.name(tc.sin(x), "key")), tc.Spec(3)))
    >>> tc.plan(graph, "saveable", rule=rule).note
    'save_anything_except_these_names: 2 of 2 values may be saved'
    """
    return SavePolicy("save_anything_except_these_names", partial(is_none_of, names))


def save_from_both_policies(first: SavePolicy, second: SavePolicy) -> SavePolicy:
    """Save the values that either policy saves: the union of two policies.

    >>> import tinyckpt as tc
    >>> rules = tc.checkpoint_policies
    >>> rules.save_from_both_policies(rules.dots_saveable, rules.save_only_these_names("key")).name
    'save_from_both_policies(dots_saveable, save_only_these_names)'
    """
    return SavePolicy(
        f"save_from_both_policies({first.name}, {second.name})",
        partial(is_either, first.saves, second.saves),
    )


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str] = (),
    names_which_can_be_offloaded: Sequence[str] = (),
) -> SavePolicy:
    """Save some labelled values on the device, and offload others to host memory.

    >>> import tinyckpt as tc
    >>> rule = tc.checkpoint_policies.save_and_offload_only_these_names(
    ...     names_which_can_be_offloaded=["key"]
    ... )
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.name(tc.sin(x), "key")), tc.Spec(3)))
    >>> tc.plan(graph, "saveable", rule=rule).note
    'save_and_offload_only_these_names: 0 of 2 values may be saved, 1 are moved to the host'
    """
    return SavePolicy(
        "save_and_offload_only_these_names",
        partial(is_one_of, names_which_can_be_saved),
        partial(is_one_of, names_which_can_be_offloaded),
    )


def offload_dot_with_no_batch_dims() -> SavePolicy:
    """Offload matrix products without batch dimensions to host memory.

    >>> import tinyckpt as tc
    >>> tc.checkpoint_policies.offload_dot_with_no_batch_dims().name
    'offload_dot_with_no_batch_dims'
    """
    return SavePolicy("offload_dot_with_no_batch_dims", save_none, is_unbatched_dot)


PLAIN_RULES = {
    policy.name: policy
    for policy in (
        everything_saveable,
        nothing_saveable,
        dots_saveable,
        dots_with_no_batch_dims_saveable,
        offload_dot_with_no_batch_dims(),
    )
}
NAME_RULES: dict[str, Callable[..., SavePolicy]] = {
    "save_only_these_names": save_only_these_names,
    "save_any_names_but_these": save_any_names_but_these,
    "save_anything_except_these_names": save_anything_except_these_names,
}


def plan_saveable(
    graph: Graph,
    costs: Costs,
    *,
    rule: str | SavePolicy = "dots_saveable",
    names: str | Sequence[str] = (),
) -> Schedule:
    """Save the saveable values; recompute the rest once, when the backward pass first reads it.

    Args:
        graph: the training graph.
        costs: not used; the rule decides.
        rule: the name of a JAX policy, or a SavePolicy, as the functions of this module return.
        names: labels, for the rules that take names.

    Raises:
        PolicyOptionError: if there is no such rule, or no value is labelled with one of the names.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    policy = rule if isinstance(rule, SavePolicy) else rule_of(rule, names)
    labels = {node.label for node in graph.data if node.label is not None}
    for name in names:
        if name not in labels:
            known = ", ".join(sorted(labels)) or "none; give them with tc.name(x, label)"
            raise PolicyOptionError(f"saveable: no value is named {name!r}; names are {known}")
    forward = [
        (operator, graph.data[data])
        for operator in graph.operators[: graph.forward_count]
        for data in operator.outputs
    ]
    saved = [node.id for operator, node in forward if policy.saves(graph, operator, node)]
    offloaded = [
        node.id
        for operator, node in forward
        if policy.offloads is not None and policy.offloads(graph, operator, node)
        and node.view_of is None
    ]  # fmt: skip
    order = retaining_order(graph, [*saved, *offloaded], reuse=True)
    note = f"{policy.name}: {len(saved)} of {len(forward)} values may be saved"
    if policy.offloads is not None:
        note += f", {len(offloaded)} are moved to the host"
    options = {"rule": policy.name, **({"names": list(names)} if names else {})}
    schedule = from_order(graph, order, "saveable", options, note, [*saved, *offloaded])
    return insert_offloads(schedule, offloaded) if offloaded else schedule


def rule_of(rule: object, names: Sequence[str]) -> SavePolicy:
    """Look up a policy by its JAX name."""
    if not isinstance(rule, str):
        raise PolicyOptionError(f"saveable: rule={rule!r}; expected the name of one rule")
    if rule in PLAIN_RULES:
        if names:
            raise PolicyOptionError(f"saveable: {rule} takes no names")
        return PLAIN_RULES[rule]
    if rule in NAME_RULES:
        return NAME_RULES[rule](*names)
    raise PolicyOptionError(
        f"saveable: unknown rule {rule!r}; known are {', '.join([*PLAIN_RULES, *NAME_RULES])}"
        f"{did_you_mean(rule, [*PLAIN_RULES, *NAME_RULES])}"
    )


SAVEABLE = Policy(
    "saveable",
    plan_saveable,
    "JAX's checkpoint policies by their names: dots_saveable, save_only_these_names, ...",
    "as good as the rule",
    "O(V + E)",
    "jax.checkpoint_policies",
)
