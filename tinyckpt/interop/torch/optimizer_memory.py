"""Memory of an optimizer's step: the state that it keeps, and its temporaries.

In: an optimizer of ``torch.optim``, and the parameters of a model. Out: bytes of both. The
optimizer's own Python takes two steps on FakeTensors, the first of which makes the state, so that
what it does by default on a device, or with ``foreach`` or ``fused``, is what is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, TypeAlias

import torch

from tinyckpt.base.errors import GraphError, did_you_mean
from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.torch.capture import FakeMode
from tinyckpt.interop.torch.eager import NEVER, StepWatch, Storage

Optimizer: TypeAlias = str | torch.optim.Optimizer | Callable[[Iterable[Any]], Any]


def optimizer_bytes(
    optimizer: Optimizer, model: torch.nn.Module, cuda: bool = False
) -> tuple[int, int]:
    """Return the bytes of an optimizer's state, and the peak of its step's temporaries.

    Args:
        optimizer: the name of a class of ``torch.optim``, one that is made of parameters alone; an
            optimizer of the model; or a function that makes one of parameters.
        model: whose parameters it is given; all that are trainable have gradients.
        cuda: whether it steps as on a CUDA device, wherever the parameters are.

    Raises:
        GraphError: if there is no such optimizer, it is another model's, or it cannot step without
            data.

    >>> optimizer_bytes("SGD", torch.nn.Linear(8, 8))
    (0, 0)
    """
    mode = FakeMode(allow_non_fake_inputs=True)
    with mode:  # fused kernels are not for the device meta
        moved = {p: torch.empty_like(p, device="cpu") for p in model.parameters() if cuda}
    fakes = moved or {parameter: mode.from_tensor(parameter) for parameter in model.parameters()}
    for parameter, fake in fakes.items():
        fake.grad = torch.empty_like(fake) if parameter.requires_grad else None
    device = next((fake.device.type for fake in fakes.values()), "cpu")
    try:
        made = made_of(optimizer, fakes)
        for group in made.param_groups if cuda or device != "cpu" else ():
            if group.get("foreach", 0) is None and not group.get("fused"):
                group["foreach"] = True  # PyTorch's own choice there, for all but FakeTensors
        made.step()
        state = [x for each in made.state.values() for x in each.values() if is_on(device, x)]
        watch = StepWatch(mode, saving=False)
        watch.device = device
        with watch:
            made.step()
        watch.over = True
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(
            f"optimizer={optimizer!r:.80} takes no step without data: {error_text(error)}"
        ) from error
    return sum(x.nbytes for x in state), peak_of(watch.made)


def made_of(optimizer: Optimizer, fakes: dict[Any, Any]) -> torch.optim.Optimizer:
    """Return an optimizer like another one, or by its name, of parameters without data."""
    if isinstance(optimizer, torch.optim.Optimizer):
        given = [p for group in optimizer.param_groups for p in group["params"]]
        if foreign := sum(p not in fakes for p in given):
            raise GraphError(
                f"{foreign} of the {len(given)} parameters of {type(optimizer).__name__} are not "
                "the model's; expected an optimizer of this model, such as one made after a copy"
            )
        groups = [
            {**group, "params": [fakes[p] for p in group["params"]]}
            for group in optimizer.param_groups
        ]
        return type(optimizer)(groups)
    make = optimizer_class(optimizer) if isinstance(optimizer, str) else optimizer
    made: torch.optim.Optimizer = make(list(fakes.values()))
    return made


def optimizer_class(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return a class of ``torch.optim`` by its name.

    Raises:
        GraphError: if there is none.
    """
    known = {
        each: kind
        for each, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    }
    if name not in known:
        raise GraphError(
            f"optimizer={name!r:.80} is no class of torch.optim{did_you_mean(name, list(known))}"
        )
    return known[name]


def is_on(device: str, value: Any) -> bool:
    """Whether a value is a tensor on a device; an optimizer keeps counts of steps on the CPU."""
    return isinstance(value, torch.Tensor) and value.device.type == device


def peak_of(storages: list[Storage]) -> int:
    """Return the most bytes of some storages that are live at once."""
    changes: Counter[int] = Counter()
    for each in storages:
        changes[each.born] += each.nbytes
        changes[min(each.died, NEVER - 1) + 1] -= each.nbytes
    return max(accumulate(changes[time] for time in sorted(changes)), default=0)
