"""The modules of a model that may be wrapped: which there are, and what stands against it.

A module may stand in a model under several names; it is one module, whichever name is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from tinyckpt.base.errors import GraphError, meant
from tinyckpt.interop.torch import isolation
from tinyckpt.interop.torch.checks import check_measurable, check_model
from tinyckpt.interop.torch.eager import Called, Recording, record
from tinyckpt.interop.torch.replaying import verdicts
from tinyckpt.interop.torch.restoring import contexts, norms_in

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
NAMED = 6  # modules that an error names


def recorded(
    model: Any, args: Sequence[Any], modules: Sequence[str] | None, workspace: bool
) -> tuple[Recording, dict[str, str]]:
    """Record a step of a model; return it, and why modules cannot be wrapped, by name.

    The reason of a module that may be wrapped is empty.

    Args:
        model, args, modules, workspace: as ``advise`` takes them.

    Raises:
        GraphError: if it is no model, cannot be run as a training step, or one of the modules that
            were named cannot be wrapped.
    """
    check_model(model)
    name, known = type(model).__name__, modules_of(model)
    if modules is None:
        names = apart(blocks_of(model), known)
    else:
        names = list(dict.fromkeys(checked_module_names(modules)))
        check_names(names, known, name)
        check_apart(names, known, name)
    check_measurable(model, args, workspace)
    if workspace:
        isolation.start()
    recording = record(model, args, {each: known[each] for each in names}, workspace)
    reasons = {each: unusable(known[each], recording.calls[each]) for each in names}
    usable = {each: known[each] for each in names if not reasons[each]}
    found = verdicts(model, args, usable)
    for each, verdict in found.items():
        reasons[each] = verdict.reason or read_again(recording, each)
    recording.kept = {
        each: (verdict.kept, verdict.saves, verdict.dropped) for each, verdict in found.items()
    }
    recording.restored = {each: verdict.restored for each, verdict in found.items()}
    bad = next((each for each in names if reasons[each]), None)
    if modules is not None and bad is not None:
        raise GraphError(f"{name}: {bad} {reasons[bad]}; it cannot be wrapped")
    return recording, reasons


def unwrapped(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Return the modules of some names, none of which is wrapped.

    Raises:
        GraphError: if a module is not there, or is wrapped already.
    """
    name, known = type(model).__name__, modules_of(model)
    check_names(names, known, name)
    for each in names:
        if is_wrapped(known[each]):
            raise GraphError(f"{name}: {each} is wrapped already")
    return [known[each] for each in names]


def check_restored(model: nn.Module, restored: Mapping[str, Sequence[str]]) -> None:
    """Raise a GraphError if a module lacks a buffer that is to be put back."""
    for name, own in restored.items():
        buffers = dict(model.get_submodule(name).named_buffers(remove_duplicate=False))
        for each in own:
            if each not in buffers:
                raise GraphError(
                    f"{type(model).__name__}: {name} has no buffer {each}, which is to be put "
                    "back; legal is a model of the kind that was advised on"
                )


# Names -------------------------------------------------------------------------------------------


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by each name that ``get_submodule`` takes."""
    return dict(model.named_modules(remove_duplicate=False))


def blocks_of(model: nn.Module) -> list[str]:
    """Return the modules that one would wrap: elements of the outermost lists of modules.

    A sequence of modules without children of their own, as of a convolution, a norm and a
    nonlinearity, is one of them as a whole.
    """
    found: list[str] = []
    stack = [("", model)]
    while stack:
        name, module = stack.pop()
        within = [part for _, part in module.named_modules()][1:]
        opened = not name or is_list_of_blocks(module)
        in_list = bool(name) and isinstance(known_parent(model, name), LISTS)
        if opened or (not in_list and any(map(is_list_of_blocks, within))):
            children = [
                (f"{name}.{child}" if name else child, part)
                for child, part in module.named_children()
            ]
            stack += reversed(children)
        else:
            found.append(name)
    return found


def known_parent(model: nn.Module, name: str) -> nn.Module:
    """Return the module in which another one stands."""
    return model.get_submodule(name.rpartition(".")[0])


def is_list_of_blocks(module: nn.Module) -> bool:
    """Whether a module holds others for no purpose of its own, some of them not single layers."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return True
    return isinstance(module, nn.Sequential) and any(
        list(part.children()) for part in module.children()
    )


def unusable(module: nn.Module, calls: Sequence[Called]) -> str:
    """Return why a module cannot be wrapped, or nothing."""
    if is_wrapped(module):
        return "is wrapped already"
    if len(calls) != 1:
        return f"is called {len(calls)} times" if calls else "is never called"
    return ""


def read_again(recording: Recording, name: str) -> str:
    """Return why the backward pass of a module cannot do with one more evaluation, or nothing."""
    called = recording.calls[name][0]
    if any(called.begin <= s.saved <= called.end and s.reads > 1 for s in recording.saved):
        return "reads in its backward pass more than once what was saved once (ctx.saved_tensors)"
    return ""


def checked_module_names(modules: Any) -> list[Any]:
    """Return names of modules, after checking that they are several."""
    if isinstance(modules, str | bytes) or not isinstance(modules, Iterable):
        raise GraphError(f"modules={modules!r:.80}; give a list of names of modules")
    return list(modules)


def check_names(names: Sequence[str], known: dict[str, nn.Module], model: str) -> None:
    """Raise a GraphError about the first name that no module of a model has."""
    for name in names:
        if not name or name not in known:
            others = [each for each in known if each]
            raise GraphError(
                f"{model}: no module {name!r:.80}{meant(str(name), others)}; known are "
                f"{', '.join(others[:NAMED])}, …"
            )


def check_apart(names: Sequence[str], known: dict[str, nn.Module], model: str) -> None:
    """Raise a GraphError if one of some modules stands in another, or is another."""
    for name in names:
        for other in names:
            if other != name and known[name] in set(known[other].modules()):
                raise GraphError(f"{model}: {name} is in {other}; legal is one of the two")


def apart(names: Sequence[str], known: dict[str, nn.Module]) -> list[str]:
    """Return names without those of modules that stand in an earlier one, or have one in them."""
    taken: set[nn.Module] = set()
    inside: set[nn.Module] = set()
    found = []
    for name in names:
        own = set(known[name].modules())
        if known[name] not in inside and taken.isdisjoint(own):
            found.append(name)
            taken.add(known[name])
            inside |= own
    return found


# Wrapping ----------------------------------------------------------------------------------------


def is_wrapped(module: nn.Module) -> bool:
    """Whether ``wrap`` was applied to a module."""
    return getattr(vars(module).get("forward"), "func", None) is checkpoint


def wrap(module: nn.Module, restored: Sequence[str] = ()) -> None:
    """Put a module's forward under ``checkpoint``, with its own contexts if it writes to buffers.

    Args:
        module: which is not wrapped yet.
        restored: names in it of buffers that its second evaluation finds as the first one did.
    """
    options: dict[str, Any] = {}
    if restored or norms_in(module):
        options["context_fn"] = partial(contexts, module, tuple(restored))
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, **options)


# In words ----------------------------------------------------------------------------------------


def refusals(refused: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each reason why modules cannot be wrapped, which there are before it."""
    alike: dict[str, list[str]] = {}
    for name, reason in refused:
        alike.setdefault(reason, []).append(name)
    lines = [f"  {listed(names)}: {reason}" for reason, names in alike.items()]
    return ["", "Not to choose from:", *lines] if lines else []


def listed(names: Sequence[str]) -> str:
    """Return some names, as many as an error names."""
    return ", ".join(names[:NAMED]) + (f", … ({len(names)})" if len(names) > NAMED else "")
