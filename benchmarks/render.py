"""Benchmark: rendering a trace to an animation: frames per second, file size and memory.

The baseline is the usual method, one ``dot`` process per frame and imageio for the GIF, on the
first frames of each trace only; without a system Graphviz its columns are left out. Another
baseline is imageio's two GIF writers, fed with the frames of ``viz.frames``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

import imageio.v3 as iio
import table
from PIL import Image
from tinyckpt.viz.layout.drawn_nodes import cells_of, links_of
from tinyckpt.viz.node_looks import Fill
from tinyckpt.viz.raster.encode import ENCODERS
from tinyckpt.viz.scene import frames
from tinyckpt.viz.time_axis import frame_steps

import tinyckpt as tc
from tinyckpt import viz

NAIVE_FRAMES = {16: 68, 64: 20, 256: 8}
ROUNDS = 5
LONG = (  # network, policy, frames
    ("chain:256", "sqrt_n", "all"),
    ("chain:100", "recompute_all", "1000"),
    ("chain:100", "recompute_all", "10000"),
)
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


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def speed(path: Path) -> str:
    """Return the table of frames a second, ours and the usual way's in turn."""
    body = []
    viz.gif(tc.replay(tc.plan(tc.networks.chain(4))), path)  # imports and fonts
    for n, limit in NAIVE_FRAMES.items():
        trace = tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n"))
        count = len(frame_steps(trace)) + 1
        runners = {"viz": (partial(viz.gif, trace, path, every=1), count)}
        if shutil.which("dot"):
            runners["dot"] = (partial(naive, trace, path.with_stem("dot"), limit), limit)
        wall: dict[str, list[float]] = {name: [] for name in runners}  # seconds a frame
        cpu: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(ROUNDS):
            for name, (runner, drawn) in runners.items():
                begin, worked = perf_counter(), cpu_seconds()
                runner()
                wall[name].append((perf_counter() - begin) / drawn)
                cpu[name].append((cpu_seconds() - worked) / drawn)
        size = f"{os.path.getsize(path) / 1024:.0f} KiB"
        row = [f"chain:{n}", count, f"{1 / statistics.median(wall['viz']):.0f}", size]
        if "dot" in runners:
            row.append(f"{1 / statistics.median(wall['dot']):.1f} (of the first {limit})")
            row += [
                f"{table.median_ratio(seconds['dot'], seconds['viz']):.0f}x"
                for seconds in (wall, cpu)
            ]
        else:
            row += ["no dot here", "", ""]
        body.append(row)
    header = [
        "sqrt_n on", "frames", "frames/s", "file", "one `dot` a frame, frames/s",
        "ratio", "ratio of processor time",
    ]  # fmt: skip
    return f"{table.rows(header, body)}\n\nMedians of {ROUNDS} rounds, in turn."


def formats(path: Path) -> str:
    """Return the table of what each format costs."""
    trace = tc.replay(tc.plan(tc.networks.chain(64), "sqrt_n"))
    count = len(frame_steps(trace)) + 1
    body = []
    for name in ENCODERS:
        begin = perf_counter()
        try:
            viz.gif(trace, path, format=name, every=1)
        except tc.BackendError as error:
            body.append([name, str(error), ""])
            continue
        rate = count / (perf_counter() - begin)
        body.append([name, f"{rate:.0f}", f"{os.path.getsize(path) / 1024:.0f} KiB"])
    return table.rows([f"chain:64, {count} frames", "frames/s", "file"], body)


DRAW = """
import resource, sys
import tinyckpt as tc
from tinyckpt import viz
network, policy, frames, path = sys.argv[1:]
trace = tc.replay(tc.plan(tc.networks.network_from_text(network)[0], policy))
from tinyckpt.viz.time_axis import frame_steps
last = frame_steps(trace)[int(frames) - 2] if frames != "all" else None
viz.gif(trace, path, every=1, last=last)
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)
"""


def memory(path: Path) -> str:
    """Return the table of peak memory of whole processes, Python and NumPy included.

    Linux counts a parent's memory as its child's up to the child's start: this is to run first.
    """
    body = []
    for network, policy, wanted in LONG:
        command = [sys.executable, "-c", DRAW, network, policy, wanted, str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        with Image.open(path) as image:
            count = image.n_frames
        size = f"{os.path.getsize(path) / 2**20:.1f} MiB"
        body.append([f"{network}, {policy}", count, f"{float(found.stdout):.0f} MiB", size])
    return table.rows(["", "frames", "peak memory of the process", "file"], body)


WRITE = """
import resource, sys
from time import perf_counter
import tinyckpt as tc
from tinyckpt import viz
how, path, count = sys.argv[1:]
trace = tc.replay(tc.plan(tc.networks.chain(64), "sqrt_n"))
viz.gif(tc.replay(tc.plan(tc.networks.chain(2))), path)  # imports and fonts
import imageio, imageio.v3 as iio
begin = perf_counter()
shown = viz.frames(trace, every=1, last=int(count))
if how == "viz":
    viz.gif(trace, path, every=1, last=int(count))
elif how == "v3":
    iio.imwrite(path, list(shown), duration=120, loop=0, plugin="pillow")
else:
    with imageio.get_writer(path, format="GIF-PIL", mode="I", duration=120, loop=0) as writer:
        for frame in shown:
            writer.append_data(frame)
seconds = perf_counter() - begin
unit = 1 if sys.platform == "darwin" else 1024
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)
"""
WRITERS = {
    "viz": "viz.gif, streamed",
    "v3": "imageio.v3, pillow plugin: takes a list of all frames",
    "legacy": "imageio.get_writer, GIF-PIL: streamed",
}


def writers(path: Path) -> str:
    """Return the table of what writes the frames of one trace as a GIF, each in its own process."""
    trace = tc.replay(tc.plan(tc.networks.chain(64), "sqrt_n"))
    steps = frame_steps(trace)
    body = []
    for last in (steps[69], steps[-1]):
        count = sum(step <= last for step in steps) + 1
        rates: dict[str, list[float]] = {how: [] for how in WRITERS}
        found: dict[str, list[str]] = {}
        for _ in range(3):
            for how, name in WRITERS.items():
                command = [sys.executable, "-c", WRITE, how, str(path), str(last)]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, memory = map(float, run.stdout.split())
                rates[how].append(seconds)
                size = f"{os.path.getsize(path) / 1024:.0f} KiB"
                found[how] = [name, str(count), f"{memory:.0f} MiB", size]
        for how, (name, frames_written, memory_peak, size) in found.items():
            slower = table.median_ratio(rates[how], rates["viz"])
            speed_text = f"{count / statistics.median(rates[how]):.0f}"
            body.append([name, frames_written, speed_text, f"{slower:.1f}x", memory_peak, size])
    header = ["chain:64", "frames", "frames/s", "time", "peak memory", "file"]
    return f"{table.rows(header, body)}\n\nMedians of three processes each, in turn."


def whole_process(path: Path) -> str:
    """Return how long the command takes, from its start to its end."""
    arguments = ["gif", "chain:16", "--policy", "sqrt_n", "-o", str(path)]
    seconds = []
    for _ in range(5):
        begin = perf_counter()
        command = [sys.executable, "-m", "tinyckpt", *arguments]
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(perf_counter() - begin)
    return (
        "`tinyckpt gif chain:16 --policy sqrt_n -o out.gif` takes "
        f"{statistics.median(seconds):.2f} s, the median of five whole processes "
        f"({min(seconds):.2f} to {max(seconds):.2f} s)."
    )


def measure() -> list[str]:
    """Return the sections of the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.gif"
        parts = [job(path) for job in (memory, whole_process, speed, formats, writers)]
    return [parts[2], parts[3], parts[4], parts[0], parts[1]]


if __name__ == "__main__":
    packages = ["numpy", "pillow", "imageio", "pygraphviz", "av"]
    table.write("render", "From trace to animation", measure(), packages)
