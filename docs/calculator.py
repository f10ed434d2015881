"""Generator of the calculator: what fills training memory, for any choice of a network's sizes.

Templates of six families (``parametric.py``) go into one page, which evaluates them, plans and
replays as the lab does, and says what to paste into a framework. The page needs no server.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from parametric import Sizes, compact, template

import tinyckpt as tc
from viz.lab.empty import constants
from viz.player.packing import bundle_columns, packed_texts
from viz.player.page import FRESH, HOST, MEASURED, SEVERAL, STYLES, TIMES, asset, filled, json_text

TITLE = "What does training it take?"
WITHOUT_SCRIPTS = (
    "Scripts are off. With them this page computes the memory of a training step for a network of "
    "your sizes; tc.ledger(tc.plan(graph)) computes the same in Python."
)
TYPES = {"float32": "32 bit (float32)", "float16": "16 bit (float16)"}
OPTIMISERS = {
    "none": None,
    "SGD": tc.sgd(0.1),
    "SGD with momentum": tc.momentum(0.1),
    "AdamW": tc.adamw(1e-3),
    "AdamW with float32 master weights": tc.with_master_weights(tc.adamw(1e-3)),
}
SEED = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A number that the page asks for: its name, default, range, and the legal values if few."""

    name: str
    label: str
    usual: int
    least: int = 1
    most: int = 1 << 20
    among: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A family of networks.

    Attributes:
        title: as the page shows it.
        build: from layers, variant (``fused``, ``dtype``, ...) and symbols to the network.
        symbols: of its sizes, in terms of which they are monomials, each with values to trace.
        choices: what the page asks for.
        variants: what else the structure depends on, each with its values.
        derived: symbols that are functions of the others.
        least: layers; as in ``parametric.template``.
    """

    title: str
    build: Callable[..., Any]
    symbols: dict[str, range]
    choices: tuple[Choice, ...]
    variants: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    derived: Callable[[Sizes], Sizes] = lambda sizes: {}
    least: int = 1


LAYERS, BATCH = Choice("layers", "layers", 12, 1, 128), Choice("batch", "batch", 8, 1, 65536)
WIDTH, HEADS = Choice("width", "width", 768, 2, 65536), Choice("heads", "heads", 12, 1, 1024)
LENGTH = Choice("length", "sequence", 1024, 2, 1 << 20)
VOCABULARY = Choice("vocabulary", "vocabulary", 50257, 2)
FUSED = {"fused": (False, True)}
SEQUENCES = {
    "heads": range(2, 9), "head_width": range(4, 30, 2), "length": range(4, 23),
    "batch": range(2, 20), "vocabulary": range(20, 60),
}  # fmt: skip
DEPTHS = (18, 34, 50, 101, 152)

FAMILIES: dict[str, Family] = {
    "gpt": Family(
        "GPT",
        lambda layers, s, fused, dtype: tc.networks.gpt2(
            layers, s["heads"] * s["head_width"], s["heads"], s["length"], s["batch"],
            s["vocabulary"], positions=s["positions"], fused=fused, dtype=dtype,
        ),
        {**SEQUENCES, "positions": range(25, 60)},
        (LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY),
        FUSED,
    ),
    "llama": Family(
        "Llama",
        lambda layers, s, fused, grouped, dtype: tc.networks.llama(
            layers, s["kv_heads"] * s["group"] * s["head_width"], s["kv_heads"] * s["group"],
            s["length"], s["batch"], s["vocabulary"], kv_heads=s["kv_heads"], hidden=s["hidden"],
            fused=fused, dtype=dtype,
        ),
        {
            "kv_heads": range(2, 9), "group": range(2, 9), "head_width": range(4, 30, 2),
            "length": range(4, 23), "batch": range(2, 20), "vocabulary": range(20, 60),
            "hidden": range(20, 70),
        },
        (
            Choice("layers", "layers", 16, 1, 128), Choice("width", "width", 2048, 2, 65536),
            Choice("heads", "heads", 32, 1, 1024), Choice("kv_heads", "kv heads", 8, 1, 1024),
            Choice("hidden", "MLP width", 8192, 1, 1 << 18), Choice("length", "sequence", 4096, 2),
            Choice("batch", "batch", 1, 1, 65536), Choice("vocabulary", "vocabulary", 128256, 2),
        ),
        {**FUSED, "grouped": (False, True)},
    ),
    "bert": Family(
        "BERT",
        lambda layers, s, fused, dtype: tc.networks.bert(
            layers, s["heads"] * s["head_width"], s["heads"], s["length"], s["batch"],
            s["vocabulary"], positions=s["positions"], fused=fused, dtype=dtype,
        ),
        {**SEQUENCES, "positions": range(25, 60)},
        (
            Choice("layers", "layers", 12, 2, 128), WIDTH, HEADS,
            Choice("length", "sequence", 512, 2), BATCH,
            Choice("vocabulary", "vocabulary", 30522, 2),
        ),
        FUSED,
        lambda s: {"others": s["length"] - 1},
        least=2,
    ),
    "vit": Family(
        "ViT",
        lambda layers, s, fused, dtype: tc.networks.vit(
            layers, s["heads"] * s["head_width"], s["heads"], s["side"] * s["patch"], s["batch"],
            s["patch"], fused=fused, dtype=dtype,
        ),
        {
            "heads": range(2, 9), "head_width": range(4, 30, 2), "side": range(2, 9),
            "patch": range(2, 9), "batch": range(2, 20),
        },
        (
            Choice("layers", "layers", 12, 2, 128), WIDTH, HEADS,
            Choice("size", "image", 224, 4, 4096), Choice("patch", "patch", 16, 2, 256),
            Choice("batch", "batch", 32, 2, 65536),
        ),
        FUSED,
        lambda s: {"tokens": s["side"] ** 2 + 1},
        least=2,
    ),
    "resnet": Family(
        "ResNet",
        lambda layers, s, depth, dtype: tc.networks.resnet(
            depth, s["batch"], 32 * s["blocks"], width=s["width"], dtype=dtype
        ),
        {"batch": range(2, 20), "blocks": range(2, 7), "width": range(4, 20)},
        (
            Choice("depth", "layers", 50, 18, 152, DEPTHS), Choice("width", "width", 64, 2, 4096),
            Choice("size", "image", 224, 64, 4096), Choice("batch", "batch", 32, 2, 65536),
        ),
        {"depth": DEPTHS},
        least=0,
    ),
    "mlp": Family(
        "MLP",
        lambda layers, s, dtype: tc.networks.mlp(layers, s["width"], s["batch"], dtype=dtype),
        {"width": range(3, 40), "batch": range(2, 40)},
        (
            Choice("layers", "layers", 16, 1, 2000), Choice("width", "width", 1024, 2, 1 << 18),
            Choice("batch", "batch", 65536, 2),
        ),
    ),
}  # fmt: skip


@cache
def templates() -> dict[str, dict[str, Any]]:
    """Derive and verify the template of every variant of every family, by ``family/variant/...``.

    Raises:
        ValueError: if a family has none.
    """
    return {
        "/".join([name, *(str(value).lower() for value in values)]): derived(family, values)
        for name, family in FAMILIES.items()
        for values in product(*family.variants.values(), TYPES)
    }


def derived(family: Family, values: tuple[Any, ...]) -> dict[str, Any]:
    """Derive the template of a family's variant."""
    variant = dict(zip((*family.variants, "dtype"), values, strict=True))
    generator = random.Random(SEED)
    samples = []
    for _ in range(len(family.symbols) + 3):
        sizes = {symbol: generator.choice(known) for symbol, known in family.symbols.items()}
        if variant.get("grouped") is False:
            sizes["group"] = 1
        samples.append(sizes | family.derived(sizes))
    return template(
        lambda layers, sizes: family.build(layers, sizes, **variant).graph(), samples, family.least
    )


@cache
def state_bytes(optimiser: str, dtype: str) -> tuple[int, int]:
    """Return the bytes of an optimiser's state for each element of the parameters, and all else."""
    rule = OPTIMISERS[optimiser]
    if rule is None:
        return 0, 0
    step = tc.train_step(lambda params, x: tc.sum(params["w"] * x), rule)
    totals = []
    for size in (1, 2):
        w = tc.Spec((size,), dtype)
        found = tc.ledger(step.schedule(step.init({"w": w}), w))
        totals.append(found.sources["optimizer state"])
    return totals[1] - totals[0], 2 * totals[0] - totals[1]


def data() -> dict[str, Any]:
    """Return what the page computes with, and how numbers are asked for."""
    return {
        **constants(),
        "families": {
            name: {
                "title": family.title,
                "choices": [asdict(choice) for choice in family.choices],
                "variants": list(family.variants),
            }
            for name, family in FAMILIES.items()
        },
        "types": TYPES,
        "optimisers": {
            name: {dtype: state_bytes(name, dtype) for dtype in TYPES} for name in OPTIMISERS
        },
    }


def page(theme: str = "auto") -> str:
    """Return the calculator as HTML; in a frame of its own it is a lab, of the network chosen."""
    packed = {
        "names": packed_texts(templates()),
        "texts": packed_texts(
            json.dumps(compact(each), separators=(",", ":")) for each in templates().values()
        ),
    }
    return filled(
        "player.html",
        styles=[f"{name}.css" for name in (*STYLES, "lab", "calculator")],
        scripts=(FRESH, "calculator"),
        left_out=(*SEVERAL, HOST, TIMES, MEASURED),
        theme=theme,
        front="ledger",
        title=TITLE,
        card=asset("lab.html"),
        hint="",
        opening=asset("calculator.html"),
        without=WITHOUT_SCRIPTS,
        data=json_text(bundle_columns({**data(), "templates": packed})),
        still="",
        caption="",
        table="",
    )


def write(app: Any, error: Exception | None) -> None:
    """Write the page into ``labs/`` of the site."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / "labs"
        folder.mkdir(exist_ok=True)
        (folder / "calculator.html").write_text(page(), encoding="utf-8")
