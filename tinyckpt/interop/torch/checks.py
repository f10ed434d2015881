"""What cannot be traced, said in one error before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from tinyckpt.base.errors import GraphError

# Frames in these folders are not of the model.
OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
# In PyTorch's words: an operator reads a tensor with numbers, among those that have none.
UNKNOWN_TENSOR = "convert all Tensors to FakeTensors"
READ_ONLY = "read-only"  # how NumPy's errors of arrays that are not writeable end
REGISTERED = ("_parameters", "_buffers", "_modules")  # where a module keeps what it registers
NAMED = 6  # attributes that an error names


@contextmanager
def captured(name: str, model: torch.nn.Module) -> Iterator[None]:
    """Turn whatever stops a capture into one GraphError that says where in the model it was.

    Gradients are known in it, whatever is active around it, and are not checked for NaN.
    """
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_detect_anomaly(False),
            warnings.catch_warnings(),
        ):
            # Large arrays are read-only meanwhile, see preserving; a tensor on one may be read.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            yield
    except GraphError:
        raise
    except Exception as error:
        own = [
            frame
            for frame in extract_tb(error.__traceback__)
            if not frame.filename.startswith(OURS)
        ]
        where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        if isinstance(error, AssertionError) and UNKNOWN_TENSOR in str(error):
            raise GraphError(unknown_tensor(name, where, model)) from error
        text = " ".join(str(error).split())[:300]
        if isinstance(error, ValueError) and text.endswith(READ_ONLY):
            raise GraphError(
                f"{name}: its forward writes to a NumPy array that is read-only{where}, as large "
                "ones are during a capture, which cannot be undone in them; legal is to write to "
                "small arrays, or between steps"
            ) from error
        raise GraphError(
            f"{name}: PyTorch cannot capture its training step as one graph: "
            f"{type(error).__name__}: {text}{where}; legal are arguments that forward takes, and "
            "a forward whose course does not depend on the numbers in its tensors"
        ) from error


def unknown_tensor(name: str, where: str, model: torch.nn.Module) -> str:
    """Return what to say of a model that reads a tensor of which PyTorch does not know."""
    plain = plain_tensors(model)
    own = f", such as {', '.join(plain[:NAMED])}" if plain else ""
    attribute = plain[0].rpartition(".")[2] if plain else "name"
    return (
        f"{name}: its forward reads a tensor that is no parameter, no buffer and no argument{own}"
        f'{where}; legal is self.register_buffer("{attribute}", ...) in __init__, or '
        "torch.nn.Parameter, or to pass it as an argument"
    )


def plain_tensors(model: torch.nn.Module) -> list[str]:
    """Return the attributes of a model's modules that hold tensors and are not registered."""
    return [
        f"{path}.{attribute}" if path else attribute
        for path, module in model.named_modules()
        for attribute, value in vars(module).items()
        if attribute not in REGISTERED and holds_tensor(value)
    ]


def holds_tensor(value: Any) -> bool:
    """Whether an attribute is a tensor, or a list, tuple or dict that has one."""
    if isinstance(value, dict):
        value = list(value.values())
    members = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(member, torch.Tensor) for member in members)


def check_model(model: Any) -> None:
    """Raise a GraphError unless something is a module: one that is made, not a class of them."""
    if isinstance(model, torch.jit.ScriptModule):
        raise GraphError("expected a torch.nn.Module, got a program of TorchScript")
    if not isinstance(model, torch.nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise GraphError(f"expected a torch.nn.Module whose forward returns the loss, got {what}")


TORCH = torch.__path__[0]


def check_loss(returned: Sequence[Any], tangents: Sequence[Any], name: str) -> None:
    """Raise a GraphError unless a model returns one scalar that can be differentiated.

    Args:
        returned: what its forward returns, in FakeTensors.
        tangents: the cotangents with which its backward half begins.
        name: of the model.
    """
    if len(returned) == len(tangents) == 1 and tangents[0].ndim == 0:
        if tangents[0].is_complex():
            raise GraphError(
                f"{name}: forward returns {value_text(tangents[0])}; legal is a real loss"
            )
        return
    what = ", ".join(map(value_text, returned)) or "no tensor"
    if len(returned) == 1 and not tangents:
        what += ", which depends on nothing that requires a gradient"
    raise GraphError(
        f"{name}: forward returns {what}; legal is one scalar to differentiate, the loss: wrap the "
        "model in a module that computes it"
    )


def is_meta(value: Any) -> bool:
    """Whether a value is a tensor on the device ``meta``, which has no memory and no kernels."""
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def check_measurable(model: torch.nn.Module, args: Sequence[Any], measuring: bool) -> None:
    """Raise a GraphError if kernels are to run for a model that has no memory anywhere."""
    if measuring and any(map(is_meta, (*model.parameters(), *model.buffers(), *args))):
        raise GraphError(
            f"{type(model).__name__}: workspace and seconds are measured where the tensors are, "
            "and there is no device meta here; pass workspace=False, and a cost other than measured"
        )


def value_text(value: Any) -> str:
    """Return dtype and shape of a tensor as errors say them."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"


def is_symbolic(value: Any) -> bool:
    """Whether a value is a number that is not known, or a tensor whose shape has one."""
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if isinstance(value, torch.Tensor):
        return any(isinstance(extent, symbols) for extent in value.shape)
    return isinstance(value, symbols)
