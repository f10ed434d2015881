"""To which module of a model an operator belongs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import fx
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

SCOPE = "tinyckpt_module"  # the key under which an operator's node says its module


@contextmanager
def scoped(model: torch.nn.Module) -> Iterator[None]:
    """While this is active, note for each node of a capture which module it belongs to.

    By hooks for all modules there are: the model itself is not touched.
    """
    names = {module: name for name, module in model.named_modules() if name}
    entered: list[AbstractContextManager[None]] = []

    def enter(module: torch.nn.Module, args: Any) -> None:
        if module in names:
            entered.append(fx.traceback.annotate({SCOPE: names[module]}))
            entered[-1].__enter__()

    def leave(module: torch.nn.Module, args: Any, result: Any) -> None:
        if module in names:
            entered.pop().__exit__(None, None, None)

    with ExitStack() as stack:
        stack.callback(lambda: [context.__exit__(None, None, None) for context in entered[::-1]])
        stack.enter_context(register_module_forward_pre_hook(enter))
        stack.enter_context(register_module_forward_hook(leave, always_call=True))
        yield


def scope_of(node: fx.Node) -> str:
    """Return the scope that a node's module is, such as ``blocks/0/attention``; or nothing."""
    path: str = (node.meta.get("custom") or {}).get(SCOPE, "")
    return path.replace(".", "/")
