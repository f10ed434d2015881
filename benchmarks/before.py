"""Benchmark: run times against an earlier Git revision, in interleaved runs of the same jobs.

``python benchmarks/before.py REVISION`` unpacks the revision, starts a process for each version,
and alternates between them job by job, so that other load on the machine affects all; this is
repeated with new processes, since one process may be a few percent slower throughout its life. A
second process of the revision measures the noise between two runs of the same code. Jobs use public
names only, which earlier versions have too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parent.parent
LAUNCHES, ROUNDS = 5, 11
LAYERS, SIZE = 200, 8  # operators so small that every microsecond between them shows


def jobs() -> dict[str, Callable[[], object]]:
    """Return the timed jobs, by name, after their setup."""
    import tinyckpt as tc
    from tinyckpt import viz

    def loss(weights: Any, x: Any) -> Any:
        h = x
        for w in weights:
            h = tc.tanh(h @ w)
        return tc.half_squared_norm(h)

    weights, x = tc.networks.random_arrays(
        ([tc.Spec((SIZE, SIZE))] * LAYERS, tc.Spec((SIZE, SIZE))), seed=0
    )
    graph = tc.differentiate(tc.build(loss, weights, x))
    schedule = tc.plan(graph, "store_all")
    compiled = tc.compile(schedule)
    chain = tc.networks.chain(10_000)
    short = tc.plan(tc.networks.chain(2_000), "sqrt_n")
    trace = tc.replay(tc.plan(tc.networks.chain(64), "sqrt_n"))
    folder = Path(tempfile.mkdtemp())
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or modules are compiled at every import
    imported = [sys.executable, "-c", "import tinyckpt"]

    def planning(built: Callable[[], Any], policy: str | None, budget: str) -> Callable[[], object]:
        """Plan another graph each time: of the same one, planning remembers what it searched."""
        graphs = [built() for _ in range(ROUNDS + 1)]
        return lambda: tc.plan(graphs.pop(), policy, budget=budget)

    return {
        "import tinyckpt, a new process": lambda: subprocess.run(
            imported, env=environment, check=True
        ),
        "plan chain:48, budget 60 %": planning(lambda: tc.networks.chain(48), None, "60%"),
        "plan branching:3x8, budget 80 %": planning(tc.networks.branching(3).graph, None, "80%"),
        "plan residual:8x16, blocks, 60 %": planning(
            tc.networks.residual_mlp(8, 16).graph, "blocks", "60%"
        ),
        "plan U-Net, dtr, 70 %": planning(tc.networks.unet_network().graph, "dtr", "70%"),
        "plan ResNet-18, greedy, 60 %": planning(tc.networks.resnet(18).graph, "greedy", "60%"),
        "build and differentiate, 2,000 layers": lambda: tc.networks.chain(2_000),
        "compiled step": lambda: compiled.function(weights, x),
        "run, the same step": lambda: tc.run(schedule, weights, x),
        "compile": lambda: tc.compile(schedule),
        "replay, 2,000 layers": lambda: tc.replay(short),
        "revolve, n = 10,000, s = 100": lambda: tc.plan(chain, "revolve", slots=100),
        "GIF, chain:64": lambda: viz.gif(trace, folder / "chain64.gif"),
    }


def work() -> None:
    """Run the jobs named on standard input; print their seconds."""
    known = jobs()
    for line in sys.stdin:
        begin = perf_counter()
        known[line.strip()]()
        print(perf_counter() - begin, flush=True)


class Version:
    """A process that runs jobs with the packages of one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, job: str) -> float:
        """Return the run time of a job, in seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(job, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def main(revision: str) -> None:
    """Compare with a revision; write the table."""
    import table

    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", revision, "tinyckpt", "viz"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        rounds: dict[str, list[tuple[float, ...]]] = {}
        for _ in range(LAUNCHES):
            versions = Version(folder), Version(ROOT), Version(folder)
            for job in jobs():
                for version in versions:  # warms up
                    version.seconds(job)
                for _ in range(ROUNDS):
                    seconds = tuple(version.seconds(job) for version in versions)
                    rounds.setdefault(job, []).append(seconds)
            for version in versions:
                version.process.kill()
    body = []
    for job, times in rounds.items():
        old, new, _ = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(new / old for old, new, _ in times)
        noise = statistics.median(same / old for old, _, same in times)
        body.append([job, f"{1e3 * old:.2f}", f"{1e3 * new:.2f}", f"{ratio:.2f}", f"{noise:.2f}"])
    table.write(
        "before",
        f"Beside revision {revision}",
        [table.rows(["job", f"{revision}, ms", "now, ms", "ratio", "of itself"], body)],
        ["numpy", "pillow"],
    )


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) > 1 else work()
