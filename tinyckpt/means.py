"""Deprecated alias of ``tinyckpt.techniques``, to be removed in the next version."""

import warnings

from tinyckpt.techniques import TECHNIQUES as MEANS
from tinyckpt.techniques import Case, Planned, Row
from tinyckpt.techniques import TechniqueComparison as Weighing
from tinyckpt.techniques import compare_techniques as weigh

__all__ = ["MEANS", "Case", "Planned", "Row", "Weighing", "weigh"]

warnings.warn(
    "tinyckpt.means is now tinyckpt.techniques (weigh: compare_techniques, MEANS: TECHNIQUES, "
    "Weighing: TechniqueComparison); the old names go with the next version",
    DeprecationWarning,
    stacklevel=2,
)
