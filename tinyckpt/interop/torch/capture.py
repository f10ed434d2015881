"""Ahead-of-time capture of a PyTorch training step as one joint forward-backward graph.

By AOTAutograd's ``aot_export_joint_with_descriptors``, which alone in PyTorch gives a functional
graph whose inputs and outputs are all labelled, also for models that write to buffers. Out: a
``JointGraph``: FX nodes in order, split into forward and backward outputs, with a FakeTensor per
node: shape, strides, device and storage without data.

This file and ``min_cut`` alone use private names of PyTorch; the others go through this one, or
through ``versions``, which knows which entry points need which name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.joint import JointGraph, Values
from tinyckpt.interop.torch.known_values import KnownValues, true_elements
from tinyckpt.interop.torch.pytrees import map_tensors, tree_leaves, tree_map
from tinyckpt.interop.torch.scopes import scope_of, scoped
from tinyckpt.interop.torch.state_rollback import AttributesReplaced, ObjectState
from tinyckpt.interop.torch.tied_parameters import DeduplicatedModule, Tensors, check_unwritten
from tinyckpt.interop.torch.validate_model import (
    captured,
    check_loss,
    is_meta,
    is_symbolic,
    value_text,
)
from tinyckpt.interop.torch.versions import DESCRIPTORS, private_attribute

BufferAOTInput = private_attribute(f"{DESCRIPTORS}:BufferAOTInput")
GradAOTOutput = private_attribute(f"{DESCRIPTORS}:GradAOTOutput")
InputMutationAOTOutput = private_attribute(f"{DESCRIPTORS}:InputMutationAOTOutput")
ParamAOTInput = private_attribute(f"{DESCRIPTORS}:ParamAOTInput")
PlainAOTInput = private_attribute(f"{DESCRIPTORS}:PlainAOTInput")
PlainAOTOutput = private_attribute(f"{DESCRIPTORS}:PlainAOTOutput")
TangentAOTInput = private_attribute(f"{DESCRIPTORS}:TangentAOTInput")
next_node_number = private_attribute("torch:_C._autograd._get_sequence_nr")
checkpoint_generator = private_attribute(
    "torch.utils.checkpoint:_checkpoint_without_reentrant_generator"
)
current_node = private_attribute("torch._C:_current_autograd_node")
HigherOrderOperator = private_attribute("torch._ops:HigherOrderOperator")
OpOverload = private_attribute("torch._ops:OpOverload")
FakeTensor = private_attribute("torch._subclasses:FakeTensor")
FakeMode = private_attribute("torch._subclasses:FakeTensorMode")
FAKE_IMPLEMENTATIONS = private_attribute("torch._subclasses.fake_impls:op_implementations_dict")
modes_disabled = private_attribute("torch.utils._python_dispatch:_disable_current_modes")
DispatchMode = private_attribute("torch.utils._python_dispatch:TorchDispatchMode")
# The base class of all norms with running averages.
NORMS = private_attribute("torch.nn.modules.batchnorm:_NormBase")
# Operators that update running averages in place without declaring it in their schemas. AOTAutograd
# replaces all of them, except that of AMD's GPUs, by functional operators that return the averages.
PREFIXES = "native", "cudnn", "miopen"
AVERAGING = {getattr(torch.ops.aten, f"{prefix}_batch_norm").default for prefix in PREFIXES}
# Operators whose kernels return contiguous tensors where FakeTensors have the gradient's strides.
CONTIGUOUS = {
    torch.ops.aten.native_layer_norm_backward.default,
    torch.ops.aten._log_softmax_backward_data.default,
}
# The same, of an input that is contiguous: their second argument.
UNSAFE_VIEW = torch.ops.aten._unsafe_view  # a view that no schema calls one
CONTIGUOUS_AS_INPUT = {torch.ops.aten.native_batch_norm_backward.default}
SELECTING = torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default
# Kernels of attention on CUDA devices.
CTC_LOSS = torch.ops.aten._ctc_loss.default
CTC_LOSS_BACKWARD = torch.ops.aten._ctc_loss_backward.default
FLASH_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
EFFICIENT_ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention
ITEM = torch.ops.aten._local_scalar_dense.default
SYMBOLIC = "has a shape that depends on the values of tensors; expected static shapes"
COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")  # namespaces


# Capturing ---------------------------------------------------------------------------------------


def exported(
    model: torch.nn.Module,
    args: Sequence[Any],
    first: Callable[[Sequence[Any], Tensors], None] | None = None,
) -> tuple[fx.GraphModule, DeduplicatedModule]:
    """Export the joint graph of a module; return it with the module as PyTorch saw it.

    Args:
        model: a module whose forward returns a scalar loss.
        args: the arguments of forward.
        first: called before each forward, as in ``DeduplicatedModule``.

    Raises:
        GraphError: if PyTorch cannot capture it as one graph.
    """
    # Looked up only here: it imports much of PyTorch's compiler, which no recording needs.
    export = private_attribute("torch._functorch.aot_autograd:aot_export_joint_with_descriptors")
    name = type(model).__name__
    with (
        ExitStack() as stack,
        captured(name, model),
        scoped(model),
        meta_on_cpu(model, args) as (given, _),
        fx.traceback.preserve_node_meta(),
        KnownValues(),
    ):
        whole = DeduplicatedModule(model, given, first)
        return export(stack, whole, given).graph_module, whole


def joint_of_export(graph: fx.GraphModule, whole: DeduplicatedModule, name: str) -> JointGraph:
    """Read the joint graph of an exported module.

    Args:
        graph, whole: the result of ``exported``.
        name: the module's name in errors.

    Raises:
        GraphError: if forward does not return one differentiable scalar, or the graph has an
            unsupported operator.
    """
    descriptors = output_node(graph).meta["desc"]
    # None stands for the gradient of an input that has none.
    backward = (
        i for i, of in enumerate(descriptors) if of is None or isinstance(of, GradAOTOutput)
    )
    count = next(backward, len(descriptors))
    joint = joint_of_graph(graph, count, name, whole.names)
    returned = [
        joint.values.get(node)
        for node, found in zip(joint.forward, descriptors, strict=False)
        if isinstance(found, PlainAOTOutput)
    ]
    check_unwritten(joint, name)
    check_loss(returned, [joint.values[tangent] for tangent in joint.tangents], name)
    return joint


def joint_of_graph(
    graph: fx.GraphModule, forward_outputs: int, name: str, names: Mapping[str, str] | None = None
) -> JointGraph:
    """Read a joint graph in the form in which AOTAutograd passes it to partitioners.

    Args:
        graph: the joint graph; its nodes are left unchanged, but dead code is eliminated.
        forward_outputs: the number of its outputs that belong to the forward pass.
        name: its name in errors.
        names: original names of parameters and buffers, if the graph has other names for them.

    Raises:
        GraphError: if it has unknown shapes, collectives, or higher-order operators.
    """
    graph.graph.eliminate_dead_code()
    graph.recompile()
    check_supported(graph, name)
    outputs = output_node(graph)
    results = tuple(outputs.args[0])
    nodes = list(graph.graph.nodes)
    described = {node: node.meta.get("desc") for node in nodes if node.op == "placeholder"}
    tangents = tuple(
        node
        for node, found in described.items()
        if isinstance(found, TangentAOTInput) or (found is None and "tangents" in node.name)
    )
    of_descriptor = {found: node for node, found in described.items() if found is not None}
    descriptors = outputs.meta.get("desc") or (None,) * len(results)
    mutations = {
        of_descriptor[found.mutated_input]: node
        for node, found in zip(results, descriptors, strict=True)
        if isinstance(found, InputMutationAOTOutput)
    }
    writes = tuple(node for node in nodes if is_write(node))
    mutations |= {node.all_input_nodes[0]: node.all_input_nodes[-1] for node in writes}
    values = values_of(graph)
    for node, value in values.items():  # re-evaluation may give other extents
        if any(map(is_symbolic, tree_leaves(value))):
            raise GraphError(f"{name}: {node.name}, {node.target}, {SYMBOLIC}")
    return JointGraph(
        module=graph,
        values=values,
        sources=tuple(
            node
            for node in nodes
            if node.op in ("placeholder", "get_attr") and node not in tangents
        ),
        tangents=tangents,
        forward=results[:forward_outputs],
        gradients=results[forward_outputs:],
        mutations=mutations,
        writes=writes,
        inputs={
            node: what for node, found in described.items() if (what := input_of(found, names))
        },
        gradient_of=tuple(
            input_of(found.grad_of, names) if isinstance(found, GradAOTOutput) else None
            for found in descriptors[forward_outputs:]
        ),
    )


def input_of(descriptor: Any, names: Mapping[str, str] | None) -> tuple[str, Any] | None:
    """Return an input's role, as in ``JointGraph.inputs``; None if the graph does not say."""
    if isinstance(descriptor, ParamAOTInput | BufferAOTInput):
        kind = "parameter" if isinstance(descriptor, ParamAOTInput) else "buffer"
        return kind, names[descriptor.target] if names else descriptor.target
    if isinstance(descriptor, PlainAOTInput):
        return "argument", descriptor.idx
    return None


def output_node(graph: fx.GraphModule) -> fx.Node:
    """Return the output node of a graph."""
    return next(node for node in reversed(graph.graph.nodes) if node.op == "output")


def copy_graph(graph: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph, node names included, for passes that mutate their input."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    copy.output_node().meta = dict(output_node(graph).meta)
    return fx.GraphModule(graph, copy)


def attribute_of(graph: fx.GraphModule, node: fx.Node) -> Any:
    """Return the attribute that a ``get_attr`` node reads."""
    return attrgetter(str(node.target))(graph)


def check_supported(graph: fx.GraphModule, name: str) -> None:
    """Raise a GraphError about the first node that cannot be planned."""
    for node in graph.graph.nodes:
        target = node.target
        what = None
        if any(map(is_symbolic, tree_leaves(node.meta.get("val")))):
            what = SYMBOLIC
        elif node.op == "get_attr" and isinstance(attribute_of(graph, node), torch.Generator):
            what = "is a generator of its own; use PyTorch's default generator"
        elif torch.ops.aten._linalg_check_errors.default in node.args:
            what = (
                "checks a result's values, and returns nothing; use the function that does not "
                "check, such as torch.linalg.cholesky_ex, inv_ex or solve_ex"
            )
        elif isinstance(target, HigherOrderOperator):
            what = "is a higher-order operator; expected operators on tensors alone"
        elif isinstance(target, OpOverload) and target.namespace in COLLECTIVES:
            what = "communicates with other processes; expected a step of one process"
        elif repeats_write(node):
            what = (
                "writes to an argument, which each recomputation would repeat; use "
                "operators that return their results (for a norm, "
                "torch.backends.cudnn.enabled = False)"
            )
        elif node.op not in ("placeholder", "get_attr", "call_function", "output"):
            what = f"is a {node.op} node; expected call_function nodes"
        if what:
            path = scope_of(node)
            where = f" in {path}" if path else ""
            raise GraphError(f"{name}: {node.name}, {target}{where}, {what}")


# Values ------------------------------------------------------------------------------------------


def mode_of(leaves: Iterable[Any]) -> Any:
    """Return the FakeTensorMode of the first FakeTensor; None if there is none."""
    return next((value.fake_mode for value in leaves if isinstance(value, FakeTensor)), None)


@contextmanager
def meta_on_cpu(
    model: torch.nn.Module, args: Sequence[Any]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Replace parameters and buffers on the device ``meta`` by CPU FakeTensors in this context.

    On ``meta`` PyTorch has other operators, some of them without gradients. Yields the arguments,
    replaced likewise, and the FakeTensorMode: that of existing FakeTensors, if there are any.
    """
    leaves = [*model.parameters(), *model.buffers(), *tree_leaves(tuple(args))]
    mode = mode_of(leaves) or FakeMode(allow_non_fake_inputs=True)
    of_meta = {id(value): on_cpu(value, mode) for value in leaves if is_meta(value)}
    replaced = ObjectState(model).replaced(of_meta) if of_meta else nullcontext()
    with replaced, shapes_known():
        yield tree_map(lambda x: of_meta.get(id(x), x), tuple(args)), mode


@contextmanager
def shapes_known() -> Iterator[None]:
    """Let FakeTensors have the shapes that kernels return, in this context.

    PyTorch's rule for products by groups asks for bfloat16, which a mixture of experts need not
    have. And it has none for what a mask selects, whose elements may be known.
    """
    rules: dict[Any, Any] = {op: partial(selected, FAKE_IMPLEMENTATIONS[op]) for op in SELECTING}
    product = getattr(torch.ops.aten._grouped_mm, "default", None)
    if product is not None and product not in FAKE_IMPLEMENTATIONS:
        rules[product] = grouped_product
    before = {op: FAKE_IMPLEMENTATIONS[op] for op in rules if op in FAKE_IMPLEMENTATIONS}
    try:
        FAKE_IMPLEMENTATIONS.update(rules)
        yield
    finally:
        for operator in rules:
            FAKE_IMPLEMENTATIONS.pop(operator, None)
        FAKE_IMPLEMENTATIONS.update(before)


def grouped_product(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the FakeTensor of a product by groups: the shape and strides of one in bfloat16."""

    def half(x: torch.Tensor) -> torch.Tensor:
        kind = torch.bfloat16 if x.is_floating_point() else x.dtype
        return torch.empty_strided(x.shape, x.stride(), dtype=kind, device="meta")

    with modes_disabled():
        made = func(*map_tensors(half, args), **map_tensors(half, kwargs))
        found = torch.empty_strided(made.shape, made.stride(), dtype=args[0].dtype, device="meta")
        return FakeTensor(mode, found, args[0].device)


def selected(rule: Any, mode: Any, func: Any, *args: Any) -> Any:
    """Return the FakeTensor of what a mask selects, or of where it is true, if that is known.

    Otherwise what PyTorch's own rule returns.
    """
    (*of, mask), count = args, true_elements(args[-1])
    if count is None:
        return rule(mode, func, *args)
    shape: tuple[int, ...] = (count, mask.ndim)
    kind = torch.int64
    if of:
        repeated = torch.broadcast_shapes(of[0].shape, mask.shape).numel() // max(mask.numel(), 1)
        shape, kind = (count * repeated,), of[0].dtype
    with modes_disabled():
        return FakeTensor(mode, torch.empty(shape, dtype=kind, device="meta"), mask.device)


def on_cpu(value: torch.Tensor, mode: Any) -> torch.Tensor:
    """Return a FakeTensor on the CPU with the layout of a tensor on another device."""
    with mode:
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=value.requires_grad)
        return made.requires_grad_(value.requires_grad)


@contextmanager
def autocast_left() -> Iterator[None]:
    """Leave the caller's autocast within this context: backward passes and graphs run without it.

    It is not only disabled: what a recomputation casts is cached until the outermost autocast ends,
    which is then its own.
    """
    depth = torch.autocast_increment_nesting()
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    for _ in range(depth):
        torch.autocast_decrement_nesting()
    for device in devices:
        torch.set_autocast_enabled(device, False)
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        for _ in range(depth - 1):
            torch.autocast_increment_nesting()
        for device in devices:
            torch.set_autocast_enabled(device, True)
        torch.clear_autocast_cache()


def values_of(graph: fx.GraphModule) -> dict[fx.Node, Any]:
    """Re-evaluate a graph on FakeTensors; values alias storages as real tensors would.

    Alias analysis reads storages, not operator schemas, since schemas do not declare all views.
    """
    nodes = [node for node in graph.graph.nodes if node.op != "output"]
    mode = mode_of(x for node in nodes for x in tree_leaves(node.meta.get("val")))
    if mode is None:
        raise GraphError("the joint graph computes no tensor")
    interpreter = fx.Interpreter(graph, garbage_collect_values=False)
    values = interpreter.env
    with mode, torch.no_grad(), autocast_left(), shapes_known():
        for node in nodes:
            if node.op == "placeholder":
                values[node] = node.meta.get("val")  # None for a number, a constant of the graph
            elif node.op == "get_attr":
                values[node] = mode.from_tensor(attribute_of(graph, node))
            else:
                values[node] = interpreter.run_node(node)
    return dict(values)


def storage_of(value: Any) -> tuple[int, int] | None:
    """Return the id of a tensor's storage, and its bytes; None for a value that is no tensor.

    Ids are unique among tensors that exist at the same time.

    Raises:
        GraphError: if the tensor is sparse or nested, since it has no single storage.
    """
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout != torch.strided:
        raise GraphError(
            f"the step has a tensor of layout {value.layout}, {value_text(value)}; expected "
            "strided tensors, such as gradients of an Embedding with sparse=False"
        )
    return address_of(value), value.untyped_storage().nbytes()


def address_of(value: torch.Tensor) -> int:
    """Return the id of a tensor's storage, unique among storages that exist at the same time."""
    return int(value.untyped_storage()._cdata)


def fake_state(values: Values, node: fx.Node) -> Any:
    """Return a FakeTensor of the size of the generator state that a random operator draws from."""
    given = [values[source] for source in (*node.all_input_nodes, node)]
    tensors = [x for x in tree_leaves(given) if isinstance(x, FakeTensor)]
    on_gpu = any(x.device.type == "cuda" for x in tensors)
    nbytes = 16 if on_gpu else torch.get_rng_state().numel()  # a seed and an offset, or all words
    with tensors[0].fake_mode:
        return torch.empty(nbytes, dtype=torch.uint8)


# Operators ---------------------------------------------------------------------------------------


def is_random(node: fx.Node) -> bool:
    """Whether an evaluation draws random numbers.

    Attention has the tag, but draws none where its dropout rate is 0.
    """
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = {a.name: a.default_value for a in target._schema.arguments}
    given |= arguments_of(target, node.args, node.kwargs)
    return all(given.get(rate) != 0.0 for rate in ("p", "dropout_p"))


def arguments_of(target: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind an operator's arguments to the names of its parameters."""
    return dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | dict(kwargs)


def returns_operands(target: Any) -> bool:
    """Whether results of an operator may be in the memory of its operands."""
    return any(result.alias_info is not None for result in target._schema.returns)


def takes_device(target: Any) -> bool:
    """Whether an operator has a ``device`` argument, as factories and conversions have."""
    return any(argument.name == "device" for argument in target._schema.arguments)


def is_mutable(target: Any) -> bool:
    """Whether an operator writes to its arguments."""
    return bool(target._schema.is_mutable)


def has_scalar_operand(func: Any, args: Sequence[Any]) -> bool:
    """Whether a binary tensor operator is called with a tensor and a Python number."""
    kinds = [isinstance(x, torch.Tensor) for x in args]
    return (
        func.namespace == "aten"
        and len(args) == 2
        and sorted(kinds) == [False, True]
        and isinstance(args[kinds.index(False)], int | float | complex)
        and all(str(a.type) == "Tensor" for a in func._schema.arguments[:2])
    )


def written_by(target: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that an operator writes to."""
    given = arguments_of(target, args, kwargs)
    return [
        given.get(argument.name)
        for argument in target._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def repeats_write(node: fx.Node) -> bool:
    """Whether a recomputation would repeat a write: an in-place operator within the step."""
    if not isinstance(node.target, OpOverload):
        return False
    if node.target in AVERAGING:
        given = arguments_of(node.target, node.args, node.kwargs)
        return bool(given["training"]) and given["running_mean"] is not None
    return is_mutable(node.target) and not is_write(node)


def is_write(node: fx.Node) -> bool:
    """Whether a node copies a new value into an input of the graph.

    Inductor asks AOTAutograd to leave these in the graph, at the end of the forward pass.
    """
    return node.target is torch.ops.aten.copy_.default


def kind_of(target: Any) -> str:
    """Return the name of an operator, such as ``native_layer_norm``."""
    packet = packet_of(target) or target
    return str(getattr(packet, "__name__", packet)).removeprefix("aten.")


def operator_name(target: Any) -> str | None:
    """Return an operator's full name, such as ``aten.add.Tensor``; None if it has no overload."""
    return str(target) if isinstance(target, OpOverload) else None


def packet_of(target: Any) -> Callable[..., Any] | None:
    """Return the overload packet of an operator, the key of FLOP counts, or None."""
    return getattr(target, "_overloadpacket", None)


# Autograd and modules ----------------------------------------------------------------------------


def evaluated_node() -> tuple[str, int] | None:
    """Return which derivative the engine evaluates, or has evaluated last; None outside.

    The node itself must not be kept: it keeps what it saved.
    """
    node = current_node()
    return None if node is None else (node.name(), node._sequence_nr())


def current_node_number() -> int | None:
    """Return the number of the autograd node that is evaluated, in the order they were made.

    None outside of a backward pass, and of a node that accumulates a gradient, which has none.
    """
    node = evaluated_node()
    return None if node is None or node[1] >= 2**63 else node[1]


def saved_by(node: Any, target: Any, place: int) -> Any:
    """Return an argument that an autograd node exposes as saved (``_saved_*``), or None."""
    return getattr(node, f"_saved_{target._schema.arguments[place].name}", None)


def version_of(value: torch.Tensor) -> int:
    """Return how often autograd has noticed a write to a tensor, or to what shares its memory."""
    return int(value._version)


def is_view(value: torch.Tensor) -> bool:
    """Whether autograd tracks a tensor as a view of another one."""
    return bool(value._is_view())


def base_of(view: torch.Tensor) -> torch.Tensor:
    """Return the tensor that a view shares its memory with, itself no view."""
    base = view._base
    assert base is not None  # autograd tracks it as a view
    return base


def has_post_accumulate_hooks(source: Any) -> bool:
    """Whether a tensor has hooks on its ``.grad`` (``register_post_accumulate_grad_hook``)."""
    return bool(getattr(source, "_post_accumulate_grad_hooks", None))


def apply_gradient_hooks(value: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Apply a tensor's own gradient hooks to its gradient, as autograd would."""
    for hook in (value._backward_hooks or {}).values():
        made = hook(gradient)
        gradient = gradient if made is None else made
    return gradient


def compiled_module_name(model: torch.nn.Module) -> str | None:
    """Return the name of an already compiled module, "" for the model itself; None if none is."""
    for name, module in model.named_modules():
        if "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None):
            return str(name)
    return None


def checkpoint_calls_replaced(generator: Any, function: Any) -> AbstractContextManager[None]:
    """Return a context in which ``checkpoint`` calls others, without and with reentry."""
    module = torch.utils.checkpoint
    return AttributesReplaced({
        (module, "_checkpoint_without_reentrant_generator"): generator,
        (module, "CheckpointFunction"): function,
    })  # fmt: skip


def is_enabled(context: torch.autocast) -> bool:
    """Whether a context of autocast is one, and does not end another one."""
    return bool(context._enabled)
