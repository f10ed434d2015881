"""Advice as code: what to write in a training script, for PyTorch and what is built on it.

In: the names of modules to wrap and, for selective checkpointing, of operators whose results to
save. Out: lines that do what ``apply`` does with a ``model``, without tinyckpt; what a form cannot
express is refused. Names are those of PyTorch 2.13, transformers 5.23, torchtitan of August 2026
and torch-remat 0.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from tinyckpt.interop.torch.advising import Advice
    from tinyckpt.interop.torch.selective import Selective

FORMS = ("torch", "transformers", "torchtitan", "torch_remat", "selective", "jax")
CHECKPOINT = (
    "from functools import partial\n"
    "from torch.utils.checkpoint import checkpoint\n"
    "\n"
)  # fmt: skip
WRAPPED = "partial(checkpoint, module.forward, use_reentrant=False)"
TITAN = """\
from dataclasses import dataclass
from torchtitan.distributed.activation_checkpoint import FullAC


class AdvisedAC(FullAC):
    @dataclass(kw_only=True, slots=True)
    class Config(FullAC.Config):
        blocks: tuple[str, ...] = (
{names}        )

    def _wrap_block(self, module, *, base_fqn=None):
        if base_fqn not in self.config.blocks:
            return module
        return super()._wrap_block(module, base_fqn=base_fqn)


activation_checkpoint = AdvisedAC.Config()  # a field of Trainer.Config"""
SOME_LAYERS = """\
from transformers.modeling_layers import GradientCheckpointingLayer

wrapped = (
{names})
model.activation_checkpointing_enable()
for name, module in model.named_modules():
    if isinstance(module, GradientCheckpointingLayer):
        module.gradient_checkpointing = name in wrapped"""
REMAT = """\
import torch_remat  # it draws other random numbers again: for modules without dropout

{loop}"""
POLICY = """

def policy(context, operator, *args, **kwargs):
    kind = "".join(str(operator).split(".")[1:2])  # aten.mm.default
    names, prefixes = {names}, {prefixes}
    if kind in names or kind.startswith(prefixes):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


"""
SELECTIVE = """\
from functools import partial
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
{policy}contexts = partial(create_selective_checkpoint_contexts, policy)
{loop}"""
TITAN_POLICY = """\
from torch.utils.checkpoint import CheckpointPolicy
from torchtitan.experiments.graph_trainer.memory_policy import tag_sac_policy
from torchtitan.experiments.graph_trainer.registry import register_memory_policy
{policy}@register_memory_policy("advised")  # for --compile.memory_policy advised
def advised(gm, *, config):
    tag_sac_policy(gm, policy_fn=lambda node: policy(None, node.target))
    return gm"""

# Forms that modules have none of: what has.
WHERE = {
    "selective": "modules are recomputed as a whole; tct.selective chooses operators to save",
    "jax": "JAX has names of values, not of modules; tinyckpt.interop.jax.advise chooses them",
}


def advice_code(advice: Advice, form: str) -> str:
    """Return advice on modules in a form, a word of ``FORMS``.

    Raises:
        OptionError: if the form is unknown, or cannot express the advice; says why.
    """
    check_form(form)
    names, uncached = advice.modules, cache_lines(advice.uncached)
    if not names:
        return f"{uncached}# The model fits as it is: there is nothing to wrap."
    written = [*(name for name, _ in advice.restored), *advice.averaging]
    if written:
        raise refused(form, f"{written[0]} writes to buffers, twice a step if it is wrapped so")
    if form == "torch":
        return CHECKPOINT + uncached + loop(names, WRAPPED)
    if form == "torch_remat":
        return uncached + REMAT.format(
            loop=loop(names, "torch_remat.checkpoint(region_name=name)(module.forward)")
        )
    if form == "torchtitan":
        if other := [name for name in names if not re.fullmatch(r"layers\.\w+", name)]:
            raise refused(form, f"it wraps no modules but those in layers, and not {other[0]}")
        return TITAN.format(names=quoted(names, 12))
    if form == "transformers":
        if other := [name for name in names if name not in advice.layers]:
            raise refused(form, f"{other[0]} is not one of its GradientCheckpointingLayers")
        for every in range(1, len(advice.layers) + 1):
            if set(names) == set(advice.layers[::every]):
                return f"{uncached}model.activation_checkpointing_enable(every_n_layers={every})"
        return uncached + SOME_LAYERS.format(names=quoted(names))
    raise refused(form, WHERE[form])


def selective_code(advice: Selective, form: str, operators: Sequence[str], prefix: str) -> str:
    """Return advice on operators to save in a form; ``prefix`` is that of names of attention.

    Raises:
        OptionError: if the form is unknown, or cannot express the advice; says why.
    """
    check_form(form)
    uncached = cache_lines(advice.uncached)
    if not advice.modules:
        return f"{uncached}# The model fits as it is: there is nothing to wrap."
    names = tuple(name for name in operators if name != prefix)
    prefixes = (prefix,) if prefix in operators else ()
    policy = POLICY.format(
        names=str(names).replace("'", '"'), prefixes=str(prefixes).replace("'", '"')
    )
    if form == "torchtitan":
        return TITAN_POLICY.format(policy=policy)
    if form not in ("torch", "selective"):
        raise refused(form, "it has no policies of operators to save")
    if advice.restored:
        name = advice.restored[0][0]
        raise refused(form, f"{name} writes to buffers, twice a step if it is wrapped so")
    wrapped = f"{WRAPPED[:-1]}, context_fn=contexts)"
    return SELECTIVE.format(policy=policy, loop=uncached + loop(advice.modules, wrapped))


def loop(names: Sequence[str], wrapped: str) -> str:
    """Return a loop over modules by name that replaces their forward."""
    return (
        f"for name in (\n{quoted(names)}):\n"
        "    module = model.get_submodule(name)\n"
        f"    module.forward = {wrapped}"
    )


def cache_lines(names: Sequence[str]) -> str:
    """Return the lines that switch off the caches of modules with a configuration, by name."""
    owners = [f'model.get_submodule("{name}")' if name else "model" for name in names]
    return "".join(f"{owner}.config.use_cache = False\n" for owner in owners)


def quoted(names: Sequence[str], indent: int = 4) -> str:
    """Return a line per name, of a tuple."""
    return "".join(f'{" " * indent}"{name}",\n' for name in names)


def check_form(form: str) -> None:
    """Raise an OptionError unless a form is a word of ``FORMS``."""
    if form not in FORMS:
        raise OptionError(
            f"form {form!r:.80}{did_you_mean(str(form), FORMS)}; expected one of {', '.join(FORMS)}"
        )


def refused(form: str, why: str) -> OptionError:
    """Return the error for what a form cannot express."""
    return OptionError(f"{form} cannot express this advice: {why}; use apply(model)")
