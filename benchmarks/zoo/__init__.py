"""Models that nobody here wrote, and ours with every trap: what is promised of advice and plans.

Tables in sight: a model's name, how it is made at a small size with random weights, and what is
expected of it. ``trials`` says what is tried; ``python -m benchmarks.zoo`` writes what came of it.
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
