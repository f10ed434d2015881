"""Operator profiling in a separate process: workspace (temporary memory) and run time of kernels.

In: operator calls, of a graph's nodes or of a recorded step (``DistinctOperators``), whose tensors
have no data. Each distinct one is evaluated once.

Memory is defined as what the allocator hands out. On a CPU the profiler records each of its blocks,
kernels' temporaries included; on a GPU the allocator keeps its own statistics. Operators are
evaluated on made-up inputs, in a process that may crash: see ``isolated_worker``. Measurements are
cached by operator, layouts and settings.
"""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, TypeAlias, TypeVar

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch import isolated_worker
from tinyckpt.interop.torch.capture import (
    FakeMode,
    arguments_of,
    kind_of,
    operator_name,
    storage_of,
)
from tinyckpt.interop.torch.costs import OperatorCall, flops_of
from tinyckpt.interop.torch.infer_shapes import stand_in
from tinyckpt.interop.torch.known_values import true_elements
from tinyckpt.interop.torch.pytrees import map_tensors, tensor_leaves, tree_leaves, tree_map
from tinyckpt.interop.torch.worker import allocated, mapped

Derivative: TypeAlias = tuple[int, int, OperatorCall]  # with its first and its last event
KEPT = 4_000  # distinct operators whose measurements are cached, 2 kB each
NAMED = 6  # the most operators that a warning names
Key = TypeVar("Key", bound=Hashable)
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


UNMEASURED = MeasuredOperator()
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


class DistinctOperators:
    """The distinct operator calls of a recorded step, and the call of each event.

    Args:
        mode: makes the stand-ins.
        measuring: whether to measure operators, most of them while others are still recorded.

    Attributes:
        calls: by operator, argument layouts and constants; stand-ins for its tensors.
        events: the call of each event.
    """

    def __init__(self, mode: FakeMode, measuring: bool) -> None:
        self.stand_in, self.measuring = partial(stand_in, mode), measuring
        self.calls: dict[Any, OperatorCall] = {}
        self.events: dict[int, OperatorCall] = {}

    def call(
        self, func: Any, args: Any, kwargs: Any, result: Any, by: tuple[int, ...] = ()
    ) -> OperatorCall:
        """Return an evaluation of an operator or of its derivative: one that is equal, if any."""
        key = func, by, repr(tree_map(layout, (args, kwargs)))
        if key not in self.calls:
            args, kwargs, result = map_tensors(self.stand_in, (args, kwargs, result))
            self.calls[key] = OperatorCall(func, args, kwargs, result, by)
            if self.measuring and len(self.calls) % isolated_worker.TOGETHER == 0:
                measure_ahead([*self.calls.values()][-isolated_worker.TOGETHER :])
        return self.calls[key]

    def measured(
        self, events: int, derivatives: Sequence[Derivative]
    ) -> tuple[list[int], list[int], dict[int, tuple[int, ...]], list[Derivative]]:
        """Return workspace and FLOPs of every event, and the storage sizes of measured results.

        Args:
            events: their number.
            derivatives: to be measured as a whole, with all their workspace in their first event;
                those that could be are returned.
        """
        calls = {id(call): call for call in self.calls.values()}
        found = dict.fromkeys(calls, UNMEASURED)
        if self.measuring:
            found = measure(calls, timed=False)
        counted = {key: flops_of(call) for key, call in calls.items()}
        workspace, flops = [0] * events, [0] * events
        for event, call in self.events.items():
            workspace[event], flops[event] = found[id(call)].workspace, counted[id(call)]
        outputs = {event: found[id(call)].outputs for event, call in self.events.items()}
        whole = [each for each in derivatives if found[id(each[2])].outputs]
        for first, last, call in whole:
            workspace[first : last + 1] = [found[id(call)].workspace, *[0] * (last - first)]
        return workspace, flops, outputs, whole


# Operators in isolation --------------------------------------------------------------------------


def measure(calls: Mapping[Key, OperatorCall], timed: bool) -> dict[Key, MeasuredOperator]:
    """Evaluate every distinct operator once, in isolation, on made-up tensors.

    Operators are distinct if their arguments differ in more than tensor data. Operators that only
    return views have no kernel and are not evaluated. An operator that cannot be evaluated counts
    none, with a warning. Measurements are cached for the next call; seconds are measured anew.

    Args:
        calls: to measure, by whatever names they have.
        timed: whether to measure seconds as well, in evaluations of their own.

    Raises:
        GraphError: if tensors are on a device that is absent; or if an operator that is to be timed
            cannot be evaluated.
    """
    found = dict.fromkeys(calls, UNMEASURED)
    asked = {key: request_of(call, timed) for key, call in calls.items() if not is_view(call)}
    texts = {key: repr(request) for key, request in asked.items()}
    requests = {texts[key]: request for key, request in asked.items()}
    try:
        seen = measurements_of(requests, isolated_worker.settings())
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
    found |= {key: seen[text] for key, text in texts.items()}
    check_failures(calls, found, timed)
    return found


def measure_ahead(calls: Sequence[OperatorCall]) -> None:
    """Measure operators meanwhile, in a thread: ``measure`` finds what is cached by then."""
    asked = [request_of(call, timed=False) for call in calls if not is_view(call)]
    wanted = isolated_worker.settings()  # forward may change them while the thread runs

    def run() -> None:
        with suppress(isolated_worker.NoWorkerError):  # measure will say so
            measurements_of({repr(request): request for request in asked}, wanted)

    Thread(target=run, daemon=True).start()


def check_failures(
    calls: Mapping[Key, OperatorCall], found: Mapping[Key, MeasuredOperator], timed: bool
) -> None:
    """Warn once about all operators that could not be measured.

    Raises:
        GraphError: instead, if one of them was to be timed.
    """
    failed: tuple[dict[str, Key], dict[str, Key]] = ({}, {})  # operators, and derivatives
    for key, seen in found.items():
        if seen.failure:
            failed[bool(calls[key].by)][kind_of(calls[key].operator)] = key
    if timed and failed[0]:
        key = next(iter(failed[0].values()))
        raise GraphError(
            f"{key}, {calls[key].operator}, cannot be evaluated by itself: {found[key].failure}; "
            "a cost other than measured does without"
        )
    consequences = (
        "the workspace (temporary memory) of these operators counts as 0",
        "the derivatives of these operators count as of tensors without data, and may take other "
        "memory",
    )
    for kinds, consequence in zip(failed, consequences, strict=True):
        if not kinds:
            continue
        texts = [f"{kind} ({found[key].failure})" for kind, key in kinds.items()]
        more = f", and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
        warnings.warn(
            f"{consequence}, since they cannot be evaluated alone: "
            f"{', '.join(texts[:NAMED])}{more}; workspace=False silences this",
            stacklevel=3,
        )


def measurements_of(
    requests: dict[str, dict[str, Any]], wanted: dict[str, Any]
) -> dict[str, MeasuredOperator]:
    """Return the measurement of each request under some settings, cached or new.

    Raises:
        NoWorkerError: if no process can be started for the new ones.
    """
    settings = repr(wanted)
    with isolated_worker.WORKER.lock:  # what another thread is measuring is cached after that
        missing = [
            key
            for key, request in requests.items()
            if not request["failure"] and (request["timed"] or settings + key not in KNOWN)
        ]
        if missing:
            replies = isolated_worker.evaluate_requests([requests[key] for key in missing], wanted)
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


def request_of(call: OperatorCall, timed: bool) -> dict[str, Any]:
    """Return the worker's request for an operator: names and layouts, no tensors.

    ``failure`` says why it is not to be evaluated, if so.

    Raises:
        GraphError: if a tensor's device is absent.
    """
    operator = operator_name(call.operator)
    tensors = tensor_leaves((call.args, call.kwargs, call.result))
    for tensor in tensors:
        check_device(tensor)
    args = mapped(layout, list(call.args))
    kwargs = {name: mapped(layout, value) for name, value in call.kwargs.items()}
    failure, namespace = "", (operator or "").partition(".")[0]
    if operator is None:
        failure = "it is no operator of PyTorch's"
    elif kind_of(call.operator) in OPAQUE or namespace in OPAQUE_NAMESPACES:
        failure = "only other operators can make its operands"
    return {
        "operator": operator,
        "modules": REGISTERED_BY.get(namespace, ()),
        "args": args,
        "kwargs": kwargs,
        "forward": forward_of(call.operator, args, kwargs),
        "device": max((str(x.device) for x in tensors), default="cpu"),  # a GPU's, if there is one
        "timed": timed,
        "failure": failure,
        "by": call.by,
    }


def forward_of(
    operator: Any, args: Any, kwargs: Any
) -> tuple[str, list[Any], dict[int, int]] | None:
    """Return the forward operator to evaluate first, its arguments, and which results to hand on.

    None if there is none; see ``FORWARD``.
    """
    if kind_of(operator) not in FORWARD:
        return None
    name, wanted, handed_on = FORWARD[kind_of(operator)]
    given = arguments_of(operator, args, kwargs)
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
        "conj": value.is_conj(),
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


def is_view(call: OperatorCall) -> bool:
    """Whether all results of an operator alias its operands."""
    given = {storage_of(x) for x in tensor_leaves((call.args, call.kwargs))}
    return all(storage_of(x) in given for x in tree_leaves(call.result))
