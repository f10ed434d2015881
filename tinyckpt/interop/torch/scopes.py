"""Module paths of FX nodes: hooks annotate each captured operator with its calling module."""

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

SCOPE = "tinyckpt_module"  # node metadata key of the module path


@contextmanager
def scoped(model: torch.nn.Module) -> Iterator[None]:
    """Annotate each node captured within this context with its module's path.

    By global module hooks: the model itself is not modified.
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
        # The model's own operators are in no scope; nor in that of a capture that was interrupted.
        stack.enter_context(fx.traceback.annotate({SCOPE: ""}))
        stack.callback(lambda: [context.__exit__(None, None, None) for context in entered[::-1]])
        stack.enter_context(register_module_forward_pre_hook(enter))
        stack.enter_context(register_module_forward_hook(leave, always_call=True))
        yield


def scope_of(node: fx.Node) -> str:
    """Return the module path of a node as a scope, such as ``blocks/0/attention``, or ""."""
    path: str = (node.meta.get("custom") or {}).get(SCOPE, "")
    return path.replace(".", "/")
