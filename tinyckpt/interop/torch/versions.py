"""PyTorch version compatibility: check for the private attributes that each entry point needs.

``NEEDED`` alone names such attributes; other files look them up by ``private_attribute``. If one is
absent in the installed version, the entry points that need it raise when they are called
(``check_calls``), and the others work.
"""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module
from operator import attrgetter
from typing import Any

from tinyckpt.base.errors import BackendError
from tinyckpt.interop.importer_checks import check_installed

# Minor versions that the tests ran with, on a CPU; others raise a warning.
TESTED = ("2.13", "2.14", "2.15")

STEPS = ("backend", "inductor_partitioner", "partitioner")
JOINT = (*STEPS, "compare", "trace")
BY_MODULE = ("lint", "memory_by_module")
MIN_CUT = ("compare", "min_cut_schedules")
EACH = (
    *JOINT, "advise", "estimate", "lint", "memory_by_module", "min_cut_schedules", "offload",
    "selective", "step",
)  # fmt: skip
DESCRIPTORS = "torch._functorch._aot_autograd.descriptors"
# Module and attribute, and the entry points that need it.
NEEDED: dict[str, tuple[str, ...]] = {
    "torch._C:_current_autograd_node": EACH,
    "torch._C:_dispatch_key_set": EACH,
    "torch._ops:HigherOrderOperator": EACH,
    "torch._ops:OpOverload": EACH,
    "torch._subclasses:FakeTensor": EACH,
    "torch._subclasses:FakeTensorMode": EACH,
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager": EACH,
    "torch._subclasses.fake_impls:op_implementations_dict": EACH,
    "torch.nn.modules.batchnorm:_NormBase": EACH,
    "torch.utils._mode_utils:no_dispatch": EACH,
    "torch.utils._python_dispatch:TorchDispatchMode": EACH,
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack": EACH,
    "torch.utils._python_dispatch:_disable_current_modes": EACH,
    "torch.utils._pytree:tree_flatten": EACH,
    "torch.utils._pytree:tree_leaves": EACH,
    "torch.utils._pytree:tree_map": EACH,
    "torch.utils.weak:WeakTensorKeyDictionary": EACH,
    "torch:_C._autograd._get_sequence_nr": BY_MODULE,
    "torch.autograd.graph:Node._sequence_nr": EACH,
    "torch.utils.checkpoint:_checkpoint_without_reentrant_generator": ("lint",),
    "torch._functorch.aot_autograd:aot_export_joint_with_descriptors": ("compare", "trace"),
    f"{DESCRIPTORS}:BufferAOTInput": JOINT,
    f"{DESCRIPTORS}:GradAOTOutput": JOINT,
    f"{DESCRIPTORS}:InputMutationAOTOutput": JOINT,
    f"{DESCRIPTORS}:ParamAOTInput": JOINT,
    f"{DESCRIPTORS}:PlainAOTInput": JOINT,
    f"{DESCRIPTORS}:PlainAOTOutput": JOINT,
    f"{DESCRIPTORS}:TangentAOTInput": JOINT,
    f"{DESCRIPTORS}:SavedForBackwardsAOTOutput": STEPS,
    "torch._dynamo.backends.common:aot_autograd": ("backend", "compare"),
    "torch._dynamo.backends.debugging:boxed_nop": ("backend", "compare"),
    "torch._dynamo.config:recompile_limit": STEPS,
    "torch._guards:CompileContext.current_compile_id": STEPS,
    "torch._prims.rng_prims:run_and_save_rng_state": (*STEPS, "step"),
    "torch._prims.rng_prims:run_with_rng_state": (*STEPS, "step"),
    "torch.fx.experimental.symbolic_shapes:has_free_unbacked_symbols": STEPS,
    # backend and partitioners use these for seeds alone: a failure is logged, not raised.
    "torch._functorch.config:activation_memory_budget": MIN_CUT,
    "torch._functorch.config:enable_autograd_cache": MIN_CUT,
    "torch._functorch.partitioners:min_cut_rematerialization_partition": MIN_CUT,
    "torch._inductor.custom_graph_pass:CustomPartitionerFn": ("inductor_partitioner",),
}
# Keyword parameters that are passed.
KEYWORDS = {
    "torch._subclasses:FakeTensorMode": ("allow_non_fake_inputs",),
    "torch._functorch.partitioners:min_cut_rematerialization_partition": (
        "num_fwd_outputs",
        "static_lifetime_input_indices",
    ),
}


def check_torch() -> None:
    """Warn if the installed PyTorch version is not one of those tested.

    Raises:
        BackendError: if it is not installed; says what to install.
    """
    check_installed("torch", "PyTorch")
    if ".".join(version().split(".")[:2]) not in TESTED:
        warnings.warn(
            f"PyTorch {version()} is installed; tinyckpt.interop.torch was tested with "
            f"{', '.join(TESTED)}. Entry points that need a call which this version lacks raise "
            "when they are used",
            RuntimeWarning,
            stacklevel=3,
        )


def version() -> str:
    """Return PyTorch's version."""
    return str(import_module("torch").__version__)


def private_attribute(path: str) -> Any:
    """Look up a private attribute by its path in ``NEEDED``; an empty class if it is absent.

    So a file can be imported, and define subclasses, whose entry points refuse to run.
    """
    assert path in NEEDED, path
    found = attribute_at(path)
    return type(path.rpartition(":")[2], (), {}) if found is None else found


def attribute_at(path: str) -> Any:
    """Look up ``module:attribute.attribute``; None if it is absent."""
    module, _, names = path.partition(":")
    try:
        return attrgetter(names)(import_module(module))
    except (ImportError, AttributeError):
        return None


def check_calls(entry: str) -> None:
    """Raise unless PyTorch has every private attribute that an entry point needs.

    Raises:
        BackendError: names all that are absent, and what to install.
    """
    absent = [what for path in NEEDED if entry in NEEDED[path] for what in missing(path)]
    if absent:
        raise BackendError(
            f"{entry} needs {', '.join(absent)}, which PyTorch {version()} does not have: "
            f"pip install 'torch=={TESTED[-1]}.*'"
        )


def missing(path: str) -> list[str]:
    """Return the absent attribute of a path, or its absent keyword parameters."""
    found, name = attribute_at(path), path.replace(":", ".")
    if found is None:
        return [name]
    if path not in KEYWORDS:
        return []
    parameters = inspect.signature(found).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return []
    return [f"{name}({key}=)" for key in KEYWORDS[path] if key not in parameters]
