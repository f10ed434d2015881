"""Dtype predicates and promotion: NumPy's dtypes, and ``bfloat16`` from the package ml_dtypes.

bfloat16 is a storage dtype: float32 without its lower 16 bits. Such values can be cast, moved,
viewed, concatenated, indexed, and normalised in 32 bits; other arithmetic raises an error that
says to cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is bfloat16: among the supported dtypes, the only one of kind V."""
    return dtype.kind == "V"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is floating-point, and so differentiable."""
    return dtype.kind in "fV"


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the accumulation dtype of sums and statistics: at least 32 bits."""
    return np.result_type(dtype, np.float32)
