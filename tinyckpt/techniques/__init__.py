"""Memory-saving techniques beside recomputation, and their comparison on one network.

Compressed activations, memory-sharing norms and chunked losses are graph rewrites:
``compress_activations`` and ``low_memory_bp`` change gradients or parameters;
``chunked_evaluation`` and ``chunked_cross_entropy`` change neither. ``comparison`` puts all
techniques into one table.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyckpt.techniques.comparison import (
        BUDGET,
        CHUNKS,
        STAGES,
        TECHNIQUES,
        Case,
        Planned,
        Row,
        TechniqueComparison,
        compare_techniques,
    )

__all__ = [
    "BUDGET", "CHUNKS", "STAGES", "TECHNIQUES", "Case", "Planned", "Row", "TechniqueComparison",
    "compare_techniques",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the comparison when it is asked for: it needs all techniques, pipelines too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tinyckpt.techniques import comparison

    return getattr(comparison, name)
