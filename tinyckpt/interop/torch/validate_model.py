"""Validation of PyTorch models and losses for tracing, with errors that locate the user's code."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.torch.pytrees import tensor_leaves

# Stack frames in these folders, and in this file, are not the model's.
OURS = (
    *(str(Path(file).parent) + os.sep for file in (torch.__file__, __file__)),
    str(contextlib.__file__),
)
# PyTorch's error when an operator mixes a real tensor with FakeTensors.
UNKNOWN_TENSOR = "convert all Tensors to FakeTensors"
BY_RANDOM = "decides by a random number"  # the end of KnownValues' error
# The end of PyTorch's error about a derivative within forward, where hooks watch what is saved.
DIFFERENTIATES = "support saved tensor hooks"
# What PyTorch's errors about FakeTensors, which have no values, are about, by a part of their text.
ABOUT = {
    "DataDependentOutputException": "the value of a tensor, as for .item(), float() or if",
    "DynamicOutputShapeException": (
        "a shape that depends on the values of a tensor, as of x[mask] or torch.where(mask)"
    ),
    "_pack_padded_sequence": "namely on lengths: pass sequences padded to one, not packed",
    ".numpy() is not supported": "the values of a tensor, as for NumPy or SciPy",
}
READ_ONLY = "read-only"  # the end of NumPy's error about an array that is not writeable
REGISTERED = ("_parameters", "_buffers", "_modules")  # a module's dicts of registered members
NAMED = 6  # the most attributes that an error names


@contextlib.contextmanager
def captured(name: str, model: torch.nn.Module) -> Iterator[None]:
    """Turn any exception of a capture into one GraphError that locates it in the model's source.

    Gradients are enabled inside, whatever grad mode surrounds it, and anomaly detection is off.
    """
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_detect_anomaly(False),
            warnings.catch_warnings(),
        ):
            # Large arrays are read-only meanwhile (see preserving); tensors may alias them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            yield
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(f"{name}: {explained(error, model)}") from error


def explained(error: Exception, model: torch.nn.Module) -> str:
    """Say why a capture failed, and on which line of the model's source."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(OURS)]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    if isinstance(error, AssertionError) and UNKNOWN_TENSOR in str(error):
        if any(frame.name == "backward" for frame in own):
            return (
                "the backward of an autograd.Function reads a tensor that it does not have from "
                f"its context{where}, such as a module's parameter; hand it to apply() and to "
                "ctx.save_for_backward; advise takes such models as they are"
            )
        return unknown_tensor(where, model)
    text = error_text(error, 300).rstrip(".")
    text += "".join(f", {about}" for key, about in ABOUT.items() if key in text)
    if isinstance(error, ValueError) and text.endswith(READ_ONLY):
        return (
            f"its forward writes to a NumPy array that is read-only{where}, as large ones are "
            "during a capture, since writes to them cannot be rolled back; write to small arrays, "
            "or between steps"
        )
    if text.endswith(BY_RANDOM):
        return (
            f"forward {BY_RANDOM}{where}, as LayerDrop does, and a plan would always decide alike; "
            "set its rate to 0; advise takes such models as they are"
        )
    if DIFFERENTIATES in text:
        return (
            f"forward differentiates by itself{where}, which advice does not support; trace takes "
            "such models"
        )
    return (
        f"PyTorch cannot capture its training step as one graph: {text}{where}; expected arguments "
        "that forward accepts, and control flow that does not depend on the values of its tensors"
    )


def unknown_tensor(where: str, model: torch.nn.Module) -> str:
    """Say that a model reads an unregistered tensor, and which attributes contain some."""
    plain = [
        f"{path}.{attribute}" if path else attribute
        for path, module in model.named_modules()
        for attribute, value in vars(module).items()
        if attribute not in REGISTERED and tensor_leaves(value)
    ]
    own = f", such as {', '.join(plain[:NAMED])}" if plain else ""
    attribute = plain[0].rpartition(".")[2] if plain else "name"
    return (
        f"its forward reads a tensor that is no parameter, no buffer and no argument{own}{where}; "
        f'use self.register_buffer("{attribute}", ...) in __init__, or torch.nn.Parameter, or pass '
        "it as an argument; to a loss function, as one of targets="
    )


def check_model(model: Any) -> None:
    """Raise a GraphError unless an object is an ``nn.Module``, no TorchScript, and not sharded."""
    if not isinstance(model, torch.nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise GraphError(f"expected a torch.nn.Module whose forward returns the loss, got {what}")
    for name, part in model.named_modules():
        # Its parameters are not Python's; a mere function of tensors, as an activation, has none.
        if isinstance(part, torch.jit.ScriptModule) and (not name or [*part.parameters()]):
            where = f" as {name} of {type(model).__name__}" if name else ""
            raise GraphError(f"expected a torch.nn.Module, got a program of TorchScript{where}")
    for name, parameter in model.named_parameters():
        if type(parameter).__name__ == "DTensor":
            raise GraphError(
                f"{type(model).__name__}: {name} is sharded (a DTensor); expected the model before "
                "fully_shard, to which its advice applies before or after that"
            )


def check_loss(returned: Sequence[Any], tangents: Sequence[Any], name: str) -> None:
    """Raise a GraphError unless a model returns one differentiable real scalar.

    Args:
        returned: the results of forward, as FakeTensors.
        tangents: the cotangents that the backward pass starts from.
        name: of the model.
    """
    if len(returned) == len(tangents) == 1 and tangents[0].ndim == 0:
        if tangents[0].is_complex():
            raise GraphError(
                f"{name}: forward returns {value_text(tangents[0])}; expected a real loss"
            )
        return
    what = ", ".join(map(value_text, returned)) or "no tensor"
    if len(returned) == 1 and not tangents:
        what += ", which depends on nothing that requires a gradient"
    raise GraphError(
        f"{name}: forward returns {what}; expected one scalar to differentiate, the loss: "
        "pass loss=, a function of what forward returns, and its targets=, or the labels with "
        "which forward returns a loss"
    )


def is_meta(value: Any) -> bool:
    """Whether a value is a tensor on the device ``meta``, which has no memory and no kernels."""
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def check_measurable(model: torch.nn.Module, leaves: Sequence[Any], measuring: bool) -> None:
    """Raise a GraphError if kernels are to be measured on a model whose tensors have no memory."""
    if measuring and any(map(is_meta, (*model.parameters(), *model.buffers(), *leaves))):
        raise GraphError(
            f"{type(model).__name__}: workspace and seconds are measured where the tensors are, "
            "and there is no device meta here; pass workspace=False, and a cost other than measured"
        )


def value_text(value: Any) -> str:
    """Format dtype and shape of a tensor for errors, such as ``float32[2,4]``."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"


def is_symbolic(value: Any) -> bool:
    """Whether a value is a symbolic number, or a tensor with a symbolic extent."""
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if isinstance(value, torch.Tensor):
        return any(isinstance(extent, symbols) for extent in value.shape)
    return isinstance(value, symbols)
