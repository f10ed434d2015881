"""Operator profiling in a separate process: workspace (temporary memory) and run time of kernels.

Memory is defined as what the allocator hands out. On a CPU the profiler records each of its blocks,
kernels' temporaries included; on a GPU the allocator keeps its own statistics. Operators are
evaluated on made-up inputs, in a process that may crash: see ``isolated_worker``. Measurements are
cached by operator, layouts and settings.
"""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

import torch
from torch import fx

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch import isolated_worker
from tinyckpt.interop.torch.capture import arguments_of, kind_of, operator_name, storage_of
from tinyckpt.interop.torch.joint import Values
from tinyckpt.interop.torch.known_values import true_elements
from tinyckpt.interop.torch.pytrees import tensor_leaves, tree_leaves
from tinyckpt.interop.torch.worker import allocated, mapped

KEPT = 4_000  # distinct operators whose measurements are cached, 2 kB each
NAMED = 6  # the most operators that a warning names
Result = TypeVar("Result")
# Residuals that only the forward kernel can make, since their dtypes and contents are its own:
# reserved buffers, statistics of another precision than the input's. So the forward operator is
# evaluated first, with these arguments (names are the backward operator's, all else constants), and
# its results, by number, are passed on.
FORWARD: dict[str, tuple[str, tuple[Any, ...], dict[str, int]]] = {
    "native_layer_norm_backward": (
        "native_layer_norm",
        ("input", "normalized_shape", "weight", "bias", 1e-5),
        {"mean": 1, "rstd": 2},
    ),
    "_fused_rms_norm_backward": (
        "_fused_rms_norm", ("input", "normalized_shape", "weight", 1e-5), {"rstd": 1},
    ),
    "native_group_norm_backward": (
        "native_group_norm",
        ("input", "weight", None, "N", "C", "HxW", "group", 1e-5),
        {"mean": 1, "rstd": 2},
    ),
    "native_batch_norm_backward": (
        "native_batch_norm",
        ("input", "weight", None, "running_mean", "running_var", "train", 0.1, "eps"),
        {"save_mean": 1, "save_invstd": 2},
    ),
    "cudnn_batch_norm_backward": (
        "cudnn_batch_norm",
        ("input", "weight", None, "running_mean", "running_var", True, 0.1, "epsilon"),
        {"save_mean": 1, "save_var": 2, "reserveSpace": 3},
    ),
    "mkldnn_rnn_layer_backward": (
        "mkldnn_rnn_layer",
        (
            "input", "weight1", "weight2", "weight3", "weight4", "hx_", "cx_tmp", "reverse",
            "batch_sizes", "mode", "hidden_size", "num_layers", "has_biases", "bidirectional",
            "batch_first", "train",
        ),
        {"output": 0, "hy_": 1, "cy_": 2, "workspace": 3},
    ),
    "_cudnn_rnn_backward": (
        "_cudnn_rnn",
        (
            "input", "weight", "weight_stride0", "weight_buf", "hx", "cx", "mode", "hidden_size",
            "proj_size", "num_layers", "batch_first", "dropout", "train", "bidirectional",
            "batch_sizes", "dropout_state",
        ),
        {"output": 0, "reserve": 3, "weight_buf": 4},
    ),
    "miopen_rnn_backward": (
        "miopen_rnn",
        (
            "input", "weight", "weight_stride0", "hx", "cx", "mode", "hidden_size", "num_layers",
            "batch_first", "dropout", "train", "bidirectional", "batch_sizes", "dropout_state",
        ),
        {"output": 0, "reserve": 3, "weight_buf": 4},
    ),
    # Pivots count from 1, so zeros are illegal.
    "linalg_lu_solve": ("linalg_lu_factor_ex", ("LU",), {"pivots": 1}),
    "lu_unpack": ("linalg_lu_factor_ex", ("LU_data",), {"LU_pivots": 1}),
    "linalg_ldl_solve": ("linalg_ldl_factor_ex", ("LD",), {"pivots": 1}),
}  # fmt: skip
# Not evaluated: operators that read handles, packed weights or buffers of unknown format.
OPAQUE = (
    "lstm_mps_backward", "quantized_lstm", "quantized_gru", "quantized_lstm_cell",
    "quantized_gru_cell", "quantized_rnn_relu_cell", "quantized_rnn_tanh_cell",
)  # fmt: skip
OPAQUE_NAMESPACES = ("quantized", "sparse", "prepacked", "xnnpack", "mkldnn_prepacked", "onednn")

# Modules whose import registers the operators of a namespace.
REGISTERED_BY = {
    "prims": ("torch._prims", "torch._inductor.inductor_prims"),
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "torchvision": ("torchvision",),
    "torchaudio": ("torchaudio",),
    "torchao": ("torchao",),
    "xformers": ("xformers.ops",),
    "flash_attn": ("flash_attn",),
    "fbgemm": ("fbgemm_gpu",),
}


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """Measurement of one operator.

    Attributes:
        workspace: peak bytes of its kernel, less the bytes still live afterwards.
        outputs: bytes of the storage of each result, which may be larger than the tensor: some
            kernels reduce in place. Empty if not measured.
        seconds: of one evaluation; 0 unless timed.
        failure: why it could not be measured; empty if it was.
    """

    workspace: int = 0
    outputs: tuple[int, ...] = ()
    seconds: float = 0.0
    failure: str = ""


# Measurements by settings and request, the latest last.
KNOWN: OrderedDict[str, MeasuredOperator] = OrderedDict()


def allocator_peak(function: Callable[[], Result], device: str = "cpu") -> tuple[int, Result]:
    """Run a function; return the peak bytes that the allocator handed out for it, and its result.

    Earlier allocations are not counted.

    Args:
        function: takes nothing; its result stays live in the caller.
        device: ``cpu``, or that of a GPU.

    >>> import torch
    >>> peak, result = allocator_peak(lambda: torch.ones(256))
    >>> peak  # 256 float32 of 4 bytes
    1024
    """
    gc.collect()
    peak, _, result = allocated(function, device)
    return peak, result


# Operators in isolation --------------------------------------------------------------------------


def measure(
    values: Values, calls: Sequence[fx.Node], timed: bool
) -> dict[fx.Node, MeasuredOperator]:
    """Evaluate every distinct operator once, in isolation, on made-up tensors.

    Operators are distinct if their arguments differ in more than tensor data. Operators that only
    return views have no kernel and are not evaluated. An operator that cannot be evaluated counts
    none, with a warning. Measurements are cached for the next call; seconds are measured anew.

    Args:
        values: the source of shapes, strides and devices.
        calls: the nodes to measure.
        timed: whether to measure seconds as well, in evaluations of their own.

    Raises:
        GraphError: if tensors are on a device that is absent; or if an operator that is to be timed
            cannot be evaluated.
    """
    found = dict.fromkeys(calls, MeasuredOperator())
    requests, nodes_by_request = requests_of(values, calls, timed)
    try:
        seen = measurements_of(requests)
    except isolated_worker.NoWorkerError as error:
        if timed:
            raise GraphError(
                f"seconds are measured in a process of its own, and none can be started: {error}; "
                "a cost other than measured does without"
            ) from error
        warnings.warn(
            f"the workspace (temporary memory) of kernels counts as 0: it is measured in a process "
            f"of its own, and none can be started: {error}; workspace=False silences this",
            stacklevel=2,
        )
        return found
    for key, nodes in nodes_by_request.items():
        found |= dict.fromkeys(nodes, seen[key])
    check_failures(found, timed)
    return found


def measure_ahead(values: Values, calls: Sequence[fx.Node]) -> None:
    """Measure operators meanwhile, in a thread: ``measure`` finds what is cached by then."""
    requests, _ = requests_of(values, calls, timed=False)

    def run() -> None:
        with suppress(isolated_worker.NoWorkerError):  # measure will say so
            measurements_of(requests)

    Thread(target=run, daemon=True).start()


def requests_of(
    values: Values, calls: Sequence[fx.Node], timed: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, list[fx.Node]]]:
    """Return the distinct requests of operators that are no views, and the nodes of each."""
    requests: dict[str, dict[str, Any]] = {}
    nodes: dict[str, list[fx.Node]] = {}
    for node in calls:
        if not is_view(values, node):
            request = request_of(values, node, timed)
            requests.setdefault(repr(request), request)
            nodes.setdefault(repr(request), []).append(node)
    return requests, nodes


def check_failures(found: dict[fx.Node, MeasuredOperator], timed: bool) -> None:
    """Warn once about all operators that could not be measured.

    Raises:
        GraphError: instead, if one of them was to be timed.
    """
    failed = {kind_of(node): (node, seen) for node, seen in found.items() if seen.failure}
    if not failed:
        return
    if timed:
        node, seen = next(iter(failed.values()))
        raise GraphError(
            f"{node.name}, {node.target}, cannot be evaluated by itself: {seen.failure}; a cost "
            "other than measured does without"
        )
    texts = [f"{kind} ({seen.failure})" for kind, (_, seen) in failed.items()]
    more = f", and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    warnings.warn(
        "the workspace (temporary memory) of these operators counts as 0, since they cannot be "
        f"evaluated alone: {', '.join(texts[:NAMED])}{more}; workspace=False silences this",
        stacklevel=3,
    )


def measurements_of(requests: dict[str, dict[str, Any]]) -> dict[str, MeasuredOperator]:
    """Return the measurement of each request, cached or new.

    Raises:
        NoWorkerError: if no process can be started for the new ones.
    """
    settings = repr(isolated_worker.settings())
    with isolated_worker.WORKER.lock:  # what another thread is measuring is cached after that
        missing = [
            key
            for key, request in requests.items()
            if not request["failure"] and (request["timed"] or settings + key not in KNOWN)
        ]
        if missing:
            replies = isolated_worker.evaluate_requests([requests[key] for key in missing])
            for key, reply in zip(missing, replies, strict=False):
                failed = isinstance(reply, str)
                seen = MeasuredOperator(failure=reply) if failed else MeasuredOperator(*reply)
                KNOWN[settings + key] = seen
        found = {}
        for key, request in requests.items():
            failure = request["failure"] or "not tried, after others that ended the process"
            found[key] = KNOWN.get(settings + key, MeasuredOperator(failure=failure))
            if settings + key in KNOWN:
                KNOWN.move_to_end(settings + key)
        while len(KNOWN) > KEPT:
            KNOWN.popitem(last=False)
    return found


def request_of(values: Values, node: fx.Node, timed: bool) -> dict[str, Any]:
    """Return the worker's request for an operator: names and layouts, no tensors.

    ``failure`` says why it is not to be evaluated, if so.

    Raises:
        GraphError: if a tensor's device is absent.
    """
    operator = operator_name(node.target)
    tensors = tensor_leaves([values[each] for each in (*node.all_input_nodes, node)])
    for tensor in tensors:
        check_device(tensor)

    def described(value: Any) -> Any:
        return mapped(layout, values[value]) if isinstance(value, fx.Node) else value

    args = mapped(described, list(node.args))
    kwargs = {name: mapped(described, value) for name, value in node.kwargs.items()}
    failure, namespace = "", (operator or "").partition(".")[0]
    if operator is None:
        failure = "it is no operator of PyTorch's"
    elif kind_of(node) in OPAQUE or namespace in OPAQUE_NAMESPACES:
        failure = "only other operators can make its operands"
    return {
        "operator": operator,
        "modules": REGISTERED_BY.get(namespace, ()),
        "args": args,
        "kwargs": kwargs,
        "forward": forward_of(node, args, kwargs),
        "device": max((str(x.device) for x in tensors), default="cpu"),  # a GPU's, if there is one
        "timed": timed,
        "failure": failure,
    }


def forward_of(
    node: fx.Node, args: Any, kwargs: Any
) -> tuple[str, list[Any], dict[int, int]] | None:
    """Return the forward operator to evaluate first, its arguments, and which results to hand on.

    None if there is none; see ``FORWARD``.
    """
    if kind_of(node) not in FORWARD:
        return None
    name, wanted, handed_on = FORWARD[kind_of(node)]
    given = arguments_of(node.target, args, kwargs)
    replaced = {
        place: handed_on[argument]
        for place, (argument, value) in enumerate(given.items())
        if argument in handed_on and isinstance(value, dict)
    }
    arguments = [given.get(each) if isinstance(each, str) else each for each in wanted]
    return f"aten.{name}.default", arguments, replaced


def layout(value: Any) -> Any:
    """Return a tensor's layout as a dict for the worker; any other value unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    return {
        "dtype": value.dtype,
        "device": str(value.device),
        "shape": tuple(value.shape),
        "stride": value.stride(),
        "offset": value.storage_offset(),
        "true": true_elements(value),
    }


def check_device(value: torch.Tensor) -> None:
    """Raise a GraphError if a tensor's device is absent."""
    device = value.device
    if device.type == "meta" or (device.type == "cuda" and not torch.cuda.is_available()):
        raise GraphError(
            f"workspace and seconds are measured where the tensors are, and there is no device "
            f"{device} here; pass workspace=False, and a cost other than measured"
        )


def is_view(values: Values, node: fx.Node) -> bool:
    """Whether all results of a node alias its operands."""
    given = {storage_of(x) for source in node.all_input_nodes for x in tree_leaves(values[source])}
    return all(storage_of(x) in given for x in tree_leaves(values[node]))
