"""How fast a trace becomes a GIF, beside one ``dot`` process a frame, which is the usual way.

The usual way is measured on the first frames of each trace only; without a system Graphviz its rows
are left out. Both write through imageio.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

import imageio.v3 as iio
import table

import tinyckpt as tc
import viz
from viz.dot import cells_of, links_of
from viz.scene import Fill, frame_steps, frames

NAIVE_FRAMES = {16: 60, 64: 20, 256: 4}
FILLS = {
    Fill.NOT_YET: "#F4F6F9",
    Fill.DROPPED: "#FFFFFF",
    Fill.KEPT: "#0072B2",
    Fill.RECOMPUTED: "#56B4E9",
    Fill.GRADIENT: "#CC79A7",
}


def naive(trace: tc.Trace, path: Path, limit: int) -> int:
    """Draw the first frames with a ``dot`` process each; return how many."""
    cells = cells_of(trace.graph)
    links = [f"{a} -> {b};" for a, b in links_of(trace.graph, cells)]
    # The arrows from each forward node to its mirror are left out: they make dot far slower.
    looks = {}
    pictures = []
    steps = frame_steps(trace)[: limit - 1]
    for frame in frames(trace, cells, steps, in_nodes=True):
        looks.update(frame.changed)
        nodes = [
            f'{cell.id} [label="{cell.label}" fillcolor="{FILLS[looks[cell.id].fill]}"];'
            for cell in cells
        ]
        source = (
            'digraph { rankdir=LR; size="8,8"; splines=line; node [shape=circle style=filled];'
            f"{' '.join(nodes)} {' '.join(links)} }}"
        )
        command = ["dot", "-Tpng"]
        drawn = subprocess.run(command, input=source.encode(), capture_output=True, check=True)
        pictures.append(iio.imread(drawn.stdout, extension=".png")[..., :3])
    iio.imwrite(path, pictures, extension=".gif", duration=120, loop=0)
    return len(pictures)


def measure() -> str:
    """Return the table."""
    body = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.gif"
        viz.gif(tc.replay(tc.plan(tc.networks.chain(4))), path)  # imports and fonts
        for n in NAIVE_FRAMES:
            trace = tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n"))
            count = len(frame_steps(trace)) + 1
            begin = perf_counter()
            viz.gif(trace, path)
            rate = count / (perf_counter() - begin)
            size = os.path.getsize(path) / 1024
            row = [f"chain:{n}", count, f"{rate:.0f}", f"{size:.0f} KiB"]
            if shutil.which("dot"):
                begin = perf_counter()
                drawn = naive(trace, path, NAIVE_FRAMES[n])
                slow = drawn / (perf_counter() - begin)
                row += [f"{slow:.1f} (of {drawn})", f"{rate / slow:.0f}x"]
            else:
                row += ["no dot here", ""]
            body.append(row)
    header = ["sqrt_n on", "frames", "frames/s", "file", "one `dot` a frame, frames/s", "ratio"]
    return table.rows(header, body)


if __name__ == "__main__":
    packages = ["numpy", "pillow", "imageio", "pygraphviz"]
    table.write("render", "From trace to GIF", [measure()], packages)
