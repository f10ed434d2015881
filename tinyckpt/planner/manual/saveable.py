"""JAX's checkpoint policies by their own names: a predicate says which values may be saved.

Source: ``jax.checkpoint_policies``, JAX documentation, "Control autodiff's saved values with
jax.checkpoint". Values that may not be saved are recomputed, once, when the backward half first
reads them. Mind the names: ``everything_saveable`` means no recomputation at all.

A value's name is the label that ``tc.name(x, label)`` gave it, as ``checkpoint_name`` does in JAX.
A "dot" is a ``matmul``. It has batch dimensions if both operands have more than two axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tinyckpt.base.errors import PolicyOptionError, meant
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.graph import DataNode, Graph, Operator
from tinyckpt.core.lowering import from_order, offloading
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule

Predicate = Callable[[Graph, Operator, DataNode], bool]


@dataclass(frozen=True, slots=True)
class SavePolicy:
    """Which values may be saved on the device, and which in the host's memory."""

    name: str
    saves: Predicate
    offloads: Predicate | None = None


def is_dot(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the operator is a product of matrices."""
    return operator.kind == "matmul"


def is_plain_dot(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the operator is a product of matrices without batch dimensions."""
    ranks = [len(graph.data[data].spec.shape) for data in operator.inputs]
    return operator.kind == "matmul" and min(ranks) <= 2


def never(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Save nothing."""
    return False


def always(graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Save everything."""
    return True


def is_one_of(names: Sequence[str], graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the value has one of these names."""
    return node.label in names


def is_none_of(names: Sequence[str], graph: Graph, operator: Operator, node: DataNode) -> bool:
    """Whether the value has no name, or another."""
    return node.label not in names


def is_named_otherwise(
    names: Sequence[str], graph: Graph, operator: Operator, node: DataNode
) -> bool:
    """Whether the value has a name, and it is none of these."""
    return node.label is not None and node.label not in names


def is_either(
    first: Predicate, second: Predicate, graph: Graph, operator: Operator, node: DataNode
) -> bool:
    """Whether one of two predicates holds."""
    return first(graph, operator, node) or second(graph, operator, node)


everything_saveable = SavePolicy("everything_saveable", always)
nothing_saveable = SavePolicy("nothing_saveable", never)
dots_saveable = SavePolicy("dots_saveable", is_dot)
dots_with_no_batch_dims_saveable = SavePolicy("dots_with_no_batch_dims_saveable", is_plain_dot)


def save_only_these_names(*names: str) -> SavePolicy:
    """Save the values of these names and no others."""
    return SavePolicy("save_only_these_names", partial(is_one_of, names))


def save_any_names_but_these(*names: str) -> SavePolicy:
    """Save all values that have a name, but not one of these."""
    return SavePolicy("save_any_names_but_these", partial(is_named_otherwise, names))


def save_anything_except_these_names(*names: str) -> SavePolicy:
    """Save all values but those of these names."""
    return SavePolicy("save_anything_except_these_names", partial(is_none_of, names))


def save_from_both_policies(first: SavePolicy, second: SavePolicy) -> SavePolicy:
    """Save what either policy saves."""
    return SavePolicy(
        f"save_from_both_policies({first.name}, {second.name})",
        partial(is_either, first.saves, second.saves),
    )


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str] = (),
    names_which_can_be_offloaded: Sequence[str] = (),
) -> SavePolicy:
    """Save some names on the device and others in the host's memory."""
    return SavePolicy(
        "save_and_offload_only_these_names",
        partial(is_one_of, names_which_can_be_saved),
        partial(is_one_of, names_which_can_be_offloaded),
    )


def offload_dot_with_no_batch_dims() -> SavePolicy:
    """Save products of matrices without batch dimensions in the host's memory."""
    return SavePolicy("offload_dot_with_no_batch_dims", never, is_plain_dot)


WITHOUT_NAMES = {
    policy.name: policy
    for policy in (
        everything_saveable,
        nothing_saveable,
        dots_saveable,
        dots_with_no_batch_dims_saveable,
        offload_dot_with_no_batch_dims(),
    )
}
WITH_NAMES: dict[str, Callable[..., SavePolicy]] = {
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
    """Save what a rule allows; recompute the rest once, when the backward half first reads it.

    Args:
        graph: the training graph.
        costs: not used; the rule decides.
        rule: the name of a JAX policy, or what one of the functions of this module returned.
        names: for the rules that go by names, which.

    Raises:
        PolicyOptionError: if there is no such rule, or no value of one of the names.
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
    moved = [
        node.id
        for operator, node in forward
        if policy.offloads is not None and policy.offloads(graph, operator, node)
        and node.view_of is None
    ]  # fmt: skip
    order = retaining_order(graph, [*saved, *moved], reuse=True)
    note = f"{policy.name}: {len(saved)} of {len(forward)} values may be saved"
    if policy.offloads is not None:
        note += f", {len(moved)} are moved to the host"
    options = {"rule": policy.name, **({"names": list(names)} if names else {})}
    schedule = from_order(graph, order, "saveable", options, note, [*saved, *moved])
    return offloading(schedule, moved) if moved else schedule


def rule_of(rule: object, names: Sequence[str]) -> SavePolicy:
    """Return the policy of a name."""
    if not isinstance(rule, str):
        raise PolicyOptionError(f"saveable: rule={rule!r}; it must be one rule, by its name")
    if rule in WITHOUT_NAMES:
        if names:
            raise PolicyOptionError(f"saveable: {rule} takes no names")
        return WITHOUT_NAMES[rule]
    if rule in WITH_NAMES:
        return WITH_NAMES[rule](*names)
    raise PolicyOptionError(
        f"saveable: unknown rule {rule!r}; known are {', '.join([*WITHOUT_NAMES, *WITH_NAMES])}"
        f"{meant(rule, [*WITHOUT_NAMES, *WITH_NAMES])}"
    )


SAVEABLE = Policy(
    "saveable",
    plan_saveable,
    "JAX's checkpoint policies by their names: dots_saveable, save_only_these_names, ...",
    "as good as the rule",
    "O(V + E)",
    "jax.checkpoint_policies",
)
