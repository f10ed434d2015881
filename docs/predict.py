"""Questions that a page asks with the mouse: guess the peak, place the checkpoints.

What a reader can choose is little enough to be replayed here, all of it: ``predict-data.js`` holds
what each choice comes to, and ``predict.js`` shows it, without replaying anything itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tinyckpt as tc

LAYERS = 4  # of the chain whose peak is guessed in lesson 3
PLACED = 9  # of the chain on which checkpoints are placed: each set of them is in the data
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
PEAK = """<div class="predict" data-predict="peak"><p>Or draw it: set the line as high as you think
 that the memory gets, and the mark to where. (This needs scripts.)</p></div>"""
PLACE = """## And now you

Between all and nothing there is much room. Before the next lesson says where checkpoints belong:
where would you put them? A chain of 9 layers; what you do not keep is computed again once, when the
backward half first reads it.

<div class="predict" data-predict="place"><p>(To try it out, this page needs scripts. On paper, take
 lesson 5 for the answer.)</p></div>"""
ASKED = {"03_store_all": [PEAK]}  # below the question of the lesson
LAST = {"04_recompute_all": [PLACE]}  # at its end, before the next one answers


def write_data(app: Any, error: Exception | None) -> None:
    """Write the data beside the script that reads them."""
    if error is None and app.builder.format == "html":
        path = Path(app.outdir) / "_static" / "predict-data.js"
        path.write_text(f"const PREDICT = {json.dumps(data())};\n", encoding="utf-8")


def data() -> dict[str, Any]:
    """Return all that the questions of all pages ask."""
    return {"peak": peak_data(), "place": place_data()}


def peak_data() -> dict[str, Any]:
    """Return what is live when under store-all, and what each step does."""
    schedule = tc.plan(tc.networks.chain(LAYERS), "store_all")
    trace = tc.replay(schedule)
    lines = str(schedule).splitlines()[: len(trace.steps)]
    steps = [" ".join(line.partition(" live ")[0].split()[1:]) for line in lines]
    return {"steps": steps, "nodes": written(trace.nodes)}


def place_data() -> dict[str, Any]:
    """Return what every set of checkpoints comes to; bit i-1 of its number says that fi is kept."""
    chain = tc.networks.chain(PLACED)
    names = [f"f{layer}" for layer in range(1, PLACED + 1)]
    found = []
    for number in range(2**PLACED):
        keep = [name for bit, name in enumerate(names) if number >> bit & 1]
        found.append(tc.replay(tc.plan(chain, "retain", keep=keep)))
    policy = tc.plan(chain, "sqrt_n")
    trace = tc.replay(policy)
    kept = sorted(chain.data[data].name for data in policy.checkpoints)
    return {
        "names": names,
        "nodes": [written(trace.nodes) for trace in found],
        "evaluations": [trace.evaluations for trace in found],
        "policy": {"kept": kept, "nodes": written(trace.nodes), "evaluations": trace.evaluations},
    }


def written(counts: tuple[int, ...]) -> str:
    """Return small numbers as one digit each, of base 36."""
    return "".join(DIGITS[count] for count in counts)
