"""Dropout and attention by the operators of a CUDA device that is not here.

On a CPU dropout's mask has the input's dtype, and attention has a kernel of its own, so that both
save something else. A recording for a device calls these functions instead, on FakeTensors; they
choose operators as PyTorch does there. Autocast is refused: on a device it casts other operators.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.capture import EFFICIENT_ATTENTION, FLASH_ATTENTION, is_enabled
from tinyckpt.interop.torch.state_rollback import AttributesReplaced

AUTOCAST_OF_CUDA = (
    "autocast of a CUDA device casts other operators than a CPU's, and cannot be recorded without "
    "it; expected a model in one type, such as model.bfloat16(), or a budget= without device="
)
attention_of_device = torch.nn.functional.scaled_dot_product_attention
HEADED = 4  # axes of what fused attention takes: batch, heads, positions, width
HALVES = (torch.float16, torch.bfloat16)
WIDEST = 256  # of a head in FlashAttention


def functions_of_cuda() -> AbstractContextManager[None]:
    """Return a context in which dropout and attention save what they save on a CUDA device."""
    functional = torch.nn.functional
    dropout, enter = functional.dropout, torch.autocast.__enter__

    def refusing(context: torch.autocast) -> Any:
        if is_enabled(context):
            raise GraphError(AUTOCAST_OF_CUDA)
        return enter(context)

    def fused_dropout(
        input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or inplace or not 0 < p < 1:
            return dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]

    return AttributesReplaced({
        (functional, "dropout"): fused_dropout,
        (functional, "scaled_dot_product_attention"): attention_of_cuda,
        (torch.autocast, "__enter__"): refusing,
    })  # fmt: skip


def attention_of_cuda(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Evaluate attention by the operators that PyTorch chooses on a CUDA device.

    FlashAttention takes 16 bits, one width of at most 256, and no mask; the memory-efficient kernel
    32 bits and any width as well, but no grouped heads and no mask with a gradient; for everything
    else scores are in memory. Seeds of fused dropout are left out: the operators would be taken for
    random ones.
    """
    options: dict[str, Any] = {"scale": scale}
    is_half = query.dtype in HALVES
    is_fused = query.dim() == HEADED and query.dtype in (torch.float32, *HALVES)
    is_fused = is_fused and query.shape[0] == key.shape[0]
    is_grouped = enable_gqa and query.shape[-3] != key.shape[-3]
    widths = {query.shape[-1], key.shape[-1], value.shape[-1]}
    if is_fused and is_half and attn_mask is None and len(widths) == 1 and max(widths) <= WIDEST:
        if is_grouped:  # which PyTorch's formula for the FLOPs of FlashAttention does not know
            return attention_of_device(
                query, key, value, None, 0.0, is_causal, scale=scale, enable_gqa=True
            )
        found = FLASH_ATTENTION(query, key, value, 0.0, is_causal, **options)
        return cast("torch.Tensor", found[0])
    needs = attn_mask is not None and attn_mask.requires_grad
    if is_fused and not is_grouped and not needs and query.shape[1] == key.shape[1]:
        if attn_mask is not None:
            attn_mask = additive(attn_mask, query.dtype).expand(*query.shape[:-1], key.shape[-2])
        found = EFFICIENT_ATTENTION(
            query, key, value, attn_mask, torch.is_grad_enabled(), 0.0, is_causal, **options
        )
        return cast("torch.Tensor", found[0])
    root = math.sqrt(query.shape[-1] ** -0.5 if scale is None else scale)
    if is_grouped:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(groups, -3) for each in (key, value))
    scores = query * root @ (key * root).mT
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores + additive(attn_mask, query.dtype)
    return torch.nn.functional.dropout(scores.softmax(-1), dropout_p) @ value


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask of attention as numbers to be added to its scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)
