"""Constant folding by capture: what a forward draws or counts in Python is a number in the graph.

A capture calls the forward once. Random numbers of Python's or NumPy's that it draws would be the
same in each step of a plan, which is refused. Numbers that it counts in attributes of modules are
those of the call that was captured, which a warning says: many only count.
"""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn

from tinyckpt.errors import GraphError
from tinyckpt.interop.torch.preserving import GENERATORS

NUMBERS = (bool, int, float, complex)
NAMED = 6  # attributes that a warning names
OF_ALL: dict[str, Any] = {  # the generators behind the functions of two modules
    "random": random.getstate.__self__,  # type: ignore[attr-defined]
    "numpy.random": np.random.get_state.__self__,  # type: ignore[attr-defined]
}


@contextmanager
def constant(model: nn.Module) -> Iterator[list[str]]:
    """While this is active, the forward of a model is captured.

    Yields a list to which is added which attributes the forward has changed, and how.

    Raises:
        GraphError: if it has drawn random numbers that are not PyTorch's.
    """
    changed: list[str] = []
    drawn, counted = states_of(model), numbers_of(model)
    yield changed
    now, later = states_of(model), numbers_of(model)
    moved = [which for which in drawn if drawn[which] != now.get(which)]
    if moved:
        raise GraphError(
            f"{type(model).__name__}: its forward draws random numbers from {', '.join(moved)}, "
            "which would be the same in each step; legal are those of PyTorch, such as torch.rand"
        )
    changed += [
        f"{each} from {value} to {later[each]}"
        for each, value in counted.items()
        if each in later and later[each] != value
    ]


def warn_of(changed: Sequence[str], name: str) -> None:
    """Warn of attributes that a forward changes; the warning is about who called ``trace``."""
    if changed:
        more = ", and others" if len(changed) > NAMED else ""
        warnings.warn(
            f"{name}: its forward changes {', '.join(changed[:NAMED])}{more}: what it computes "
            "from them is the same in each step of a plan, as when it was traced",
            stacklevel=5,  # warn_of, joint_of_module, trace, its decorator
        )


def states_of(model: nn.Module) -> dict[str, bytes]:
    """Return the states of generators that are not PyTorch's, by what they are called."""
    held = {
        each: value for each, value in attributes_of(model) if isinstance(value, tuple(GENERATORS))
    }
    return {
        each: pickle.dumps(get(generator))
        for each, generator in {**OF_ALL, **held}.items()
        for kind, (get, _) in GENERATORS.items()
        if isinstance(generator, kind) and kind.__module__ != "torch._C"
    }


def numbers_of(model: nn.Module) -> dict[str, Any]:
    """Return the attributes of a model's modules that are numbers."""
    return {each: value for each, value in attributes_of(model) if type(value) in NUMBERS}


def attributes_of(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a model's modules, with the modules' names before theirs."""
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            yield (f"{path}.{key}" if path else key), value
