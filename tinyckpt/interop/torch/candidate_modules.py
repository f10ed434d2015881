"""Candidate modules for activation checkpointing: discovery, eligibility, and wrapping.

In: a model, and names or None for the elements of its outermost module lists. Out: a recording of a
step, and for each candidate the reason why it must not be wrapped, or "". A module that a model has
under several names is one module, whichever name is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, groupby, pairwise, takewhile
from operator import eq
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from tinyckpt.base.errors import GraphError, did_you_mean
from tinyckpt.interop.torch.buffer_snapshots import contexts, norms_in
from tinyckpt.interop.torch.capture import meta_on_cpu
from tinyckpt.interop.torch.check_recomputation import Verdict, verdicts
from tinyckpt.interop.torch.cuda_functions import functions_of_cuda
from tinyckpt.interop.torch.eager import ModuleCall, Recording, record
from tinyckpt.interop.torch.pytrees import tree_leaves
from tinyckpt.interop.torch.state_rollback import ObjectState
from tinyckpt.interop.torch.validate_model import captured, check_measurable, check_model

UNCALLED = (nn.ModuleList, nn.ModuleDict)
LISTS = (*UNCALLED, nn.Sequential)
UNUSED = "is never called"  # why a module cannot be wrapped
DEPTHS = 4  # levels of lists in lists whose modules are offered, each after those above
NAMED = 6  # the most modules that an error names
HANDED = "passed to it ("  # in the reason of a module that changes one of its arguments


def candidates_by_depth(
    model: Any,
    args: Sequence[Any],
    modules: Sequence[str] | None,
    workspace: bool,
    recomputing: bool = True,
    **options: Any,
) -> Iterator[tuple[Recording, dict[str, str]]]:
    """Record a step of a model; yield it, and why candidates cannot be wrapped, by name.

    The reason of an eligible module is empty. Without given candidates, yields the default ones of
    each depth, see ``blocks_of``, of the same recording.

    A decoder of transformers fills a cache in training, too, to which a layer that is evaluated
    again would append twice. Where that is why one cannot be wrapped, the step is recorded without
    the cache, as transformers' own checkpointing runs it; the model is left so.

    Args:
        model, args, modules, workspace: as in ``advise``.
        recomputing: whether modules are to be recomputed, which not all can be.
        options: of ``eager.record``.

    Raises:
        GraphError: if it is no model, cannot run as a training step, or a module in ``modules``
            cannot be wrapped.
    """
    how = modules, workspace, recomputing, options
    uncached: tuple[str, ...] = ()
    steps = recorded_by_depth(model, args, *how)
    first = next(steps)
    if any(HANDED in why for why in first[1].values()) and (uncached := switch_off_caches(model)):
        steps = recorded_by_depth(model, args, *how)
        first = next(steps)
    for recording, reasons in chain([first], steps):
        bad = next((each for each, why in reasons.items() if why), None)
        if modules is not None and bad is not None:
            raise GraphError(f"{type(model).__name__}: {bad} {reasons[bad]}; it cannot be wrapped")
        recording.uncached = uncached
        yield recording, reasons


def recorded_by_depth(
    model: Any,
    args: Sequence[Any],
    modules: Sequence[str] | None,
    workspace: bool,
    recomputing: bool,
    options: Mapping[str, Any],
) -> Iterator[tuple[Recording, dict[str, str]]]:
    """Record a step of a model as it is; otherwise as ``candidates_by_depth``."""
    check_model(model)
    name, known = type(model).__name__, modules_of(model)
    if modules is None:
        blocks = (disjoint_modules(blocks_of(model, depth), known) for depth in range(DEPTHS))
        choices = [each for each, _ in groupby(blocks)]
    else:
        names = list(dict.fromkeys(checked_module_names(modules)))
        check_names(names, known, name)
        check_disjoint(names, known, name)
        choices = [names]
    check_measurable(model, tree_leaves(tuple(args)), workspace)
    recording: Recording | None = None
    found: dict[str, Verdict] = {}
    for names in choices:
        with meta_on_cpu(model, args) as (given, _):
            with captured(name, model):  # in the grad mode of the passes
                state = ObjectState((model, given))
            if recording is None:
                watched = {each: known[each] for each in dict.fromkeys(chain(*choices))}
                recording = record(model, given, watched, workspace, state=state, **options)
            reasons = {each: call_refusal(known[each], recording.calls[each]) for each in names}
            usable = {each: known[each] for each in names if not (reasons[each] or each in found)}
            # What a module makes is counted alike in both.
            with functions_of_cuda() if options.get("cuda") else nullcontext():
                found |= verdicts(model, given, usable, state) if recomputing else {}
        for each in names:
            if not reasons[each] and (verdict := found.get(each)):
                reasons[each] = verdict.reason or saved_tensor_refusal(recording, each)
                if verdict.restored:
                    recording.restored[each] = verdict.restored
                if not verdict.reason:  # else they are of one of its calls; others may make fewer
                    recording.kept[each] = verdict.kept, verdict.saves, verdict.dropped
        yield recording, reasons


def modules_to_wrap(
    model: nn.Module,
    names: Sequence[str],
    restored: Mapping[str, tuple[str, ...]],
    core: str,
) -> list[tuple[nn.Module, tuple[str, ...]]]:
    """Look up modules, none of which may be wrapped, each with the buffers that it must restore.

    Args:
        model: the model that was advised on, or another one of its kind, in other wrappers or none.
        names: of the modules, in the model that was advised on.
        restored: local names of buffers, by module.
        core: the name of the innermost module that the model that was advised on only wraps.

    Raises:
        GraphError: if a module is absent, is already wrapped, or lacks such a buffer.
    """
    name, known = type(model).__name__, modules_of(model)
    own = names_in_model(known, names, core)
    check_names(list(own.values()), known, name)
    for each in names:
        if is_wrapped(known[own[each]]):
            raise GraphError(f"{name}: {own[each]} is wrapped already")
        buffers = dict(known[own[each]].named_buffers(remove_duplicate=False))
        for buffer in restored.get(each, ()):
            if buffer not in buffers:
                raise GraphError(
                    f"{name}: {own[each]} has no buffer {buffer}, which is to be restored; "
                    "expected a model of the kind that was advised on"
                )
    return [(known[own[each]], restored.get(each, ())) for each in names]


# Names -------------------------------------------------------------------------------------------


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by each name that ``get_submodule`` takes.

    Raises:
        GraphError: if it is no module.
    """
    if not isinstance(model, nn.Module):  # as what torch.compile makes of a compiled module
        raise GraphError(f"expected a torch.nn.Module, got a {type(model).__name__}")
    return dict(model.named_modules(remove_duplicate=False))


def core_of(model: nn.Module) -> str:
    """Return the name of the innermost module that a model only wraps; "" if it wraps none.

    A wrapper, such as ``DistributedDataParallel`` or a ``LightningModule``, has all its parameters
    in one child, which is no mere list of modules.
    """
    names: list[str] = []
    while parameters := set(model.parameters()):
        for name, part in model.named_children():
            if set(part.parameters()) == parameters and not isinstance(part, UNCALLED):
                names.append(name)
                model = part
                break
        else:
            break
    return ".".join(names)


def renamed(name: str, core: str, other: str) -> str:
    """Return a module's name in a model whose core is ``other``, from one whose core is ``core``.

    >>> renamed("module.blocks.0", core="module", other="_orig_mod.net")
    '_orig_mod.net.blocks.0'
    """
    parts, own, others = (each.split(".") if each else [] for each in (name, core, other))
    same = sum(takewhile(bool, map(eq, parts, own)))
    kept = len(others) - len(own) + same
    return ".".join(others[:kept] + parts[same:]) if kept >= 0 else name


def names_in_model(
    known: Mapping[str, nn.Module], names: Iterable[str], core: str
) -> dict[str, str]:
    """Return the names that modules have in a model, which may have other wrappers.

    Args:
        known: the modules of the model, the model itself by the name "".
        names: in the model that was advised on; returned as they are if the model lacks some.
        core: of the model that was advised on.
    """
    other = core_of(known[""])
    found = {name: renamed(name, core, other) for name in names}
    if all(each in known for each in found.values()):
        return found
    return {name: name for name in found}


def blocks_of(model: nn.Module, depth: int = 0) -> list[str]:
    """Return the default candidates: elements of the outermost lists of modules.

    With a depth, of lists in these, in so many others; where there are none, the elements above. A
    sequence of leaf modules, such as convolution, norm and nonlinearity, is one block as a whole.
    """
    found: list[str] = []
    stack, core = [("", model, 0)], core_of(model)
    while stack:
        name, module, level = stack.pop()
        within = [part for _, part in module.named_modules()][1:]
        opened = not name or f"{core}.".startswith(f"{name}.") or is_list_of_blocks(module)
        parent = model.get_submodule(name.rpartition(".")[0])
        in_list = bool(name) and isinstance(parent, LISTS)
        if opened or ((level < depth or not in_list) and any(map(is_list_of_blocks, within))):
            level += in_list and not opened
            children = [
                (f"{name}.{child}" if name else child, part, level)
                for child, part in module.named_children()
            ]
            stack += reversed(children)
        else:
            found.append(name)
    return found


def is_list_of_blocks(module: nn.Module) -> bool:
    """Whether a module is a plain container, some of whose children are more than single layers."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return True
    return isinstance(module, nn.Sequential) and any(
        list(part.children()) for part in module.children()
    )


def call_refusal(module: nn.Module, calls: Sequence[ModuleCall]) -> str:
    """Return why a module cannot be wrapped, or ""."""
    if is_wrapped(module):
        return "is wrapped already"
    if not calls:
        return UNUSED
    if any(later.begin < earlier.end for earlier, later in pairwise(calls)):
        return "calls itself"
    return ""


def saved_tensor_refusal(recording: Recording, name: str) -> str:
    """Return why the backward pass of a module needs more than one recomputation, or ""."""
    again = [s.saved for s in recording.saved if s.reads > 1]
    if any(
        called.begin <= saved <= called.end for called in recording.calls[name] for saved in again
    ):
        return "reads a saved tensor more than once in its backward pass (ctx.saved_tensors)"
    return ""


def checked_module_names(modules: Any) -> list[Any]:
    """Return names of modules as a list; raise a GraphError if they are not a collection."""
    if isinstance(modules, str | bytes) or not isinstance(modules, Iterable):
        raise GraphError(f"modules={modules!r:.80}; give a list of names of modules")
    return list(modules)


def check_names(names: Sequence[str], known: dict[str, nn.Module], model: str) -> None:
    """Raise a GraphError about the first name that no module of a model has."""
    for name in names:
        if not name or name not in known:
            others = [each for each in known if each]
            listed = f"known are {', '.join(others[:NAMED])}, …" if others else "it has no parts"
            raise GraphError(
                f"{model}: no module {name!r:.80}{did_you_mean(str(name), others)}; {listed}"
            )


def check_disjoint(names: Sequence[str], known: dict[str, nn.Module], model: str) -> None:
    """Raise a GraphError if one of some modules is nested in another, or is the same module."""
    for name in names:
        for other in names:
            if other != name and known[name] in set(known[other].modules()):
                raise GraphError(f"{model}: {name} is in {other}; expected one of the two")


def disjoint_modules(names: Sequence[str], known: dict[str, nn.Module]) -> list[str]:
    """Drop modules that are within another one, such as a shared activation, and second names."""
    inside = {part for name in names for part in [*known[name].modules()][1:]}
    found = {known[name]: name for name in reversed(names) if known[name] not in inside}
    return [name for name in names if found.get(known[name]) == name]


# Wrapping ----------------------------------------------------------------------------------------


def is_wrapped(module: nn.Module) -> bool:
    """Whether a module is under ``checkpoint``, or its saved tensors are offloaded."""
    wrapper = getattr(vars(module).get("forward"), "func", None)
    return wrapper is checkpoint or getattr(wrapper, "wraps_forward", False)


def wrap(module: nn.Module, restored: Sequence[str] = ()) -> None:
    """Put a module's forward under ``checkpoint``, with contexts that restore its buffers.

    Args:
        module: not yet wrapped.
        restored: local names of buffers that its recomputation must find as the first evaluation
            did.
    """
    options: dict[str, Any] = {}
    if restored or norms_in(module):
        options["context_fn"] = partial(contexts, module, tuple(restored))
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, **options)


def switch_off_caches(model: nn.Module) -> tuple[str, ...]:
    """Set ``config.use_cache`` to False where it is True; return the names of modules with it."""
    found = []
    for name, module in model.named_modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True:  # modules share configurations
            config.use_cache = False
            found.append(name)
    return tuple(found)


# Texts -------------------------------------------------------------------------------------------


def lines_by_reason(reasons: Sequence[tuple[str, str]], heading: str = "Excluded:") -> list[str]:
    """Format a line per reason, with the names of all modules that have it, under a heading.

    By default the reasons are why modules cannot be wrapped.
    """
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons:
        names_by_reason.setdefault(reason, []).append(name)
    lines = [f"  {shortened_list(names)}: {reason}" for reason, names in names_by_reason.items()]
    return ["", heading, *lines] if lines else []


def shortened_list(names: Sequence[str]) -> str:
    """Join names for an error, at most ``NAMED`` of them."""
    return ", ".join(names[:NAMED]) + (f", … ({len(names)})" if len(names) > NAMED else "")
