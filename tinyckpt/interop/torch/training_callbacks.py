"""Callbacks of transformers' Trainer and of Lightning: advice on the first batch, applied to it.

The batch of a framework's loop is known only inside it. So a callback waits for the first call of a
training step, calls ``advise`` with the arguments of that call, under the autocast that is active
there, and wraps the modules before the call goes on. Advice changes neither random numbers nor
data, so training is bitwise the same.

A loop of one's own needs no callback: ``advise(model, **batch, budget=...).apply(model)``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from tinyckpt.base.errors import BackendError, GraphError
from tinyckpt.interop.torch.advising import Advice, Budget, advise


class FirstBatchAdvice:
    """Advice on the first batch; a callback is this and the class that its framework expects.

    Attributes:
        advice: what was found and applied; None until the first batch.
        silenced: methods of a module that do nothing in a step that is only recorded.
    """

    advice: Advice | None = None
    silenced: tuple[str, ...] = ()

    def __init__(self, make: Callable[..., Any], budget: Budget, options: dict[str, Any]) -> None:
        self.make, self.budget, self.options = make, budget, options

    def __reduce__(self) -> Any:
        # The class is no attribute of a module; processes that a framework starts make it anew.
        return partial(self.make, self.budget, **self.options), ()

    def wait_for_call(self, module: torch.nn.Module, name: str) -> None:
        """Replace a method of a module until it is called in training, which it is advised on."""
        own, call = vars(module).get(name), getattr(module, name)

        @wraps(call)
        def first(*args: Any, **named: Any) -> Any:
            if module.training and torch.is_grad_enabled():
                set_own(module, name, own)
                self.advise(module, call, args, named)
            return call(*args, **named)

        if self.advice is None:
            set_own(module, name, first)

    def advise(self, module: torch.nn.Module, call: Any, args: Any, named: Any) -> None:
        """Advise on a module whose step is a call of one of its methods; wrap its modules."""

        @wraps(call)
        def step(*args: Any, **named: Any) -> Any:
            replaced = vars(module)["forward"]  # the step may call forward, which is not itself
            set_own(module, "forward", before["forward"])
            try:
                return call(*args, **named)
            finally:
                set_own(module, "forward", replaced)

        others = {"forward": step, **dict.fromkeys(self.silenced, silent)}
        before = {name: vars(module).get(name) for name in others}
        try:
            for name, value in others.items():
                set_own(module, name, value)
            advice = advise(module, *args, budget=self.budget, **self.options, **named)
        finally:
            for name, value in before.items():
                set_own(module, name, value)
        advice.apply(module)
        self.advice = advice
        logging.getLogger(__name__).info("%s", advice)


def silent(*args: Any, **named: Any) -> None:
    """Do nothing, in place of a method that would keep values of a step that is not run."""


def set_own(module: torch.nn.Module, name: str, value: Any) -> None:
    """Give a module an attribute of its own instead of its class's; None takes it away."""
    vars(module).pop(name, None)
    if value is not None:
        vars(module)[name] = value


def trainer_callback(budget: Budget, **options: Any) -> Any:
    """Return a callback of transformers' Trainer that checkpoints modules to meet a budget.

    On the first batch it advises, wraps the modules, and logs the advice, its attribute ``advice``.

    Args:
        budget, options: as in ``advise``.

    Raises:
        BackendError: if transformers is not installed.

    ::

        callback = tct.trainer_callback("24 GiB total")
        Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    """
    base: Any = module_of("transformers").TrainerCallback

    class TrainerAdvice(FirstBatchAdvice, base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.wait_for_call(given["model"], "forward")

    return TrainerAdvice(trainer_callback, budget, options)


def lightning_callback(budget: Budget, **options: Any) -> Any:
    """Return a callback of Lightning's Trainer that checkpoints modules to meet a budget.

    On the first batch it advises on ``training_step``, whose loss Lightning optimises by itself,
    wraps the modules, and logs the advice, its attribute ``advice``.

    Args:
        budget, options: as in ``advise``.

    Raises:
        BackendError: if neither lightning nor pytorch-lightning is installed.

    ::

        callback = tct.lightning_callback("24 GiB total")
        Trainer(callbacks=[callback]).fit(module, loader)
    """
    base: Any = module_of("pytorch_lightning", "lightning.pytorch").Callback

    class LightningAdvice(FirstBatchAdvice, base):  # type: ignore[misc]
        silenced = ("log", "log_dict")

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if not pl_module.automatic_optimization:
                raise GraphError(
                    f"{type(pl_module).__name__}: automatic_optimization is False, so its "
                    "training_step differentiates by itself; expected one that returns a loss"
                )
            self.wait_for_call(pl_module, "training_step")

    return LightningAdvice(lightning_callback, budget, options)


def module_of(*names: str) -> Any:
    """Import a framework, by the one of its names that is in use, or else installed.

    Raises:
        BackendError: if none is.
    """
    for name in sorted(names, key=lambda name: name not in sys.modules):
        if find_spec(name.partition(".")[0]) is not None:
            return import_module(name)
    raise BackendError(f"this callback needs {names[0].replace('_', '-')}, which is not installed")
