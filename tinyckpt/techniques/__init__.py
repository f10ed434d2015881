"""Memory-saving techniques beside recomputation, and their comparison on one network.

Compressed activations, memory-sharing norms and chunked losses are graph rewrites:
``compress_activations`` and ``low_memory_bp`` change gradients or parameters;
``chunked_evaluation`` and ``chunked_cross_entropy`` change neither. ``compare_techniques`` puts all
techniques into one table.
"""

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
