"""Model zoo for tests of the PyTorch planner: third-party and adversarial models.

Explicit tables: a model's name, its construction at a small size with random weights, and the
expected outcome. ``trials`` has the tests; ``python -m benchmarks.zoo`` writes their outcomes.
"""

from benchmarks.zoo import operators  # noqa: F401  (before whatever imports torchvision)
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.language import TRANSFORMERS
from benchmarks.zoo.traps import TRAPS
from benchmarks.zoo.vision import TORCHVISION

GROUPS: dict[str, dict[str, Entry]] = {
    "Ours": TRAPS, "torchvision": TORCHVISION, "transformers": TRANSFORMERS,
}  # fmt: skip
MODELS: dict[str, Entry] = {
    name: entry for group in GROUPS.values() for name, entry in group.items()
}
