"""Golden-file regression check: digests of the pictures and documents that thirty commands write.

    python -m benchmarks.thirty_commands           compare with results/thirty_commands.json
    python -m benchmarks.thirty_commands --write   write it anew

A refactoring must not change any byte of a GIF, any step of a schedule, any document. Digests
depend on the machine and its library versions, so this is not a test: write the digests before a
change, and compare after it, on one machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "thirty_commands.json"
COMMANDS = """
gif chain:8 -o 01.gif
gif chain:16 --policy sqrt_n -o 02.gif --theme dark
gif chain:32 --policy revolve --budget '6 nodes' -o 03.gif --every 4
gif mlp:6x64 --policy store_all --policy sqrt_n -o 04.gif
gif residual:6x32 --policy recompute_all -o 05.gif --scale 2
gif branching:3x16 --budget 90% -o 06.gif
gif lenet5:8 --policy sqrt_n -o 07.gif --group scope
gif transformer:2x128 --budget 96% -o 08.gif --width 1280 --aspect 16:9
gif chain:64 --policy chen_recursive -o 09.gif --labels symbol --fps 20
gif chain:9 --policy store_all --policy revolve --budget '5 nodes' -o 10.gif --arrange stacked
gif chain:16 --still 12 -o 11.gif
gif transformer:2x128 --policy sqrt_n --still 40 --theme dark -o 12.gif
plan chain:16 --policy store_all -o 13.json
plan chain:16 --policy recompute_all -o 14.json
plan chain:100 --policy sqrt_n -o 15.json
plan chain:40 --policy revolve --budget '8 nodes' -o 16.json
plan chain:30 --policy rotor --budget 40% -o 17.json
plan mlp:8x64 --policy chen_budget --budget 100% -o 18.json
plan residual:8x32 --policy dtr --budget 80% -o 19.json
plan branching:4x16 --policy greedy --budget 90% -o 20.json
plan chain:20 --policy offload -o 21.json
plan mlp:6x64 --policy retain --keep 'tanh_*' -o 22.json
graph vgg16:2 -o 23.json
graph transformer:4x128 -o 24.json
graph resnet50:1 -o 25.json
graph unet:1 -o 26.json
graph bert:2x32 -o 27.json
pipe mlp:8x64 --stages 4 --micro-batches 8 -o 28.svg
pipe mlp:8x64 --stages 2 --micro-batches 4 --schedule zb-h1 -o 29.png
pipe mlp:8x64 --stages 4 --micro-batches 4 --schedule gpipe --theme dark -o 30.svg
""".strip().splitlines()


def digest_of(line: str, folder: Path) -> str:
    """Return a digest of the file that a command writes, or the last line of its error."""
    arguments = shlex.split(line)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tinyckpt", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    written = folder / arguments[arguments.index("-o") + 1]
    return hashlib.sha256(written.read_bytes()).hexdigest()


def digests() -> dict[str, str]:
    """Return the digests by command."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda line: digest_of(line, Path(folder)), COMMANDS)
        return dict(zip(COMMANDS, found, strict=True))


def main() -> None:
    """Write the digests, or compare with those that are written."""
    found = digests()
    if "--write" in sys.argv[1:]:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
        return
    before = json.loads(RESULT.read_text())
    differing = [line for line in COMMANDS if found[line] != before.get(line)]
    for line in differing:
        print(f"differs: tinyckpt {line}\n  {before.get(line)}\n  {found[line]}")
    sys.exit(f"{len(differing)} of {len(COMMANDS)} differ" if differing else 0)


if __name__ == "__main__":
    main()
