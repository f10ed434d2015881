"""Kinds of dtypes. Besides NumPy's there is ``bfloat16``, which the package ml_dtypes adds.

bfloat16 is for storage: float32 without the lower 16 bits. Values of it are cast, moved, viewed,
joined and picked from, and normalised in 32 bits; other arithmetic refuses them, and says to cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype of a value is bfloat16: of those that there are, the only one of kind V."""
    return dtype.kind == "V"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are floating-point, and so have a derivative."""
    return dtype.kind in "fV"


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of sums and statistics of values of a dtype: 32 bits at least."""
    return np.result_type(dtype, np.float32)
