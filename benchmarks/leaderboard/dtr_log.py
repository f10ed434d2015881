"""Operator logs of Dynamic Tensor Rematerialization (Kirisame et al. 2021) as instances.

A log is what PyTorch called in one training step, one JSON document a line. CONSTANT makes a source
and CALL its results, each followed by MEMORY (bytes) and ALIAS (the argument whose memory it
shares, or -1); MUTATE writes over arguments; COPY and COPY_FROM give a value another name, RELEASE
drops one. As in the authors' simulator, an operator that writes over an argument makes a new value
of its size, and what has a name at the end is a result. The rest is as in ``instances.merged``:
sources are left out, a view is the value whose memory it shares, and the outputs of an operator are
one value, but for results, which are operators of their own with an even share of the cost. The
backward pass begins where the log says BACKWARD; in a log that does not, with the first operator
that is called so (in others, forward pooling is).
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass

from benchmarks.leaderboard.instances import Instance, InstanceError, needed

BACKWARD = "BACKWARD"  # of an annotation


@dataclass(frozen=True, slots=True)
class Call:
    """One operator: nanoseconds, the values that it reads, and those that it makes."""

    cost: int
    reads: tuple[int, ...]
    makes: list[int]
    backward: bool


def log_in(archive: bytes, member: str) -> Instance:
    """Read the log of a name in the published archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return instance_of_log(opened.read(member).decode())


def instance_of_log(text: str) -> Instance:
    """Return the training step of a log: the operators that its results need, in their order."""
    calls, sizes, results = calls_of(text)
    numbers: dict[int, int] = {}  # of operators, by the value that they make
    rows: list[tuple[int, int, tuple[int, ...], bool]] = []
    for call in calls:
        parts = [[value] for value in call.makes if value in results]
        others = [value for value in call.makes if value not in results]
        parts += [others] if others else []
        reads = tuple(sorted({numbers[value] for value in call.reads}))
        for part in parts:
            numbers.update(dict.fromkeys(part, len(rows)))
            size = sum(sizes[value] for value in part)
            rows.append((call.cost // len(parts), size, reads, call.backward))
    columns = zip(*rows, strict=True)
    return needed(Instance(*columns, tuple(sorted({numbers[value] for value in results}))))


def calls_of(text: str) -> tuple[list[Call], list[int], set[int]]:
    """Return the calls of a log, the bytes of each value, and the values that are results."""
    calls: list[Call] = []
    sizes: list[int] = []
    named: dict[str, int | None] = {}  # None: a source, or a view of one
    memory: dict[str, int] = {}
    lines = [json.loads(line) for line in text.splitlines()]
    says_backward = any(line.get("ANNOTATION") == BACKWARD for line in lines)
    backward = False

    def call(line: dict[str, str], names: list[str]) -> None:
        nonlocal backward
        backward |= not says_backward and "backward" in line["NAME"]
        reads = {value for name in names if (value := named[name]) is not None}
        calls.append(Call(int(line["TIME"]), tuple(sorted(reads)), [], backward))

    def make(name: str, size: int) -> None:
        named[name] = len(sizes)
        calls[-1].makes.append(len(sizes))
        sizes.append(size)

    arguments: list[str] = []  # of the last call
    for line in lines:
        match line["INSTRUCTION"]:
            case "ANNOTATE":
                backward |= line["ANNOTATION"] == BACKWARD
            case "CONSTANT":
                named[line["NAME"]] = None
            case "MEMORY":
                memory[line["NAME"]] = int(line["MEMORY"])
            case "CALL":
                arguments = line["ARGS"]
                call(line, arguments)
            case "ALIAS" if line["ALIAS"] == "-1":
                make(line["NAME"], memory[line["NAME"]])
            case "ALIAS":
                of = arguments[int(line["ALIAS"])]
                named[line["NAME"]], memory[line["NAME"]] = named[of], memory[of]
            case "MUTATE":
                call(line, line["ARGS"])
                for place in line["MUTATE"]:
                    make(line["ARGS"][place], memory[line["ARGS"][place]])
            case "COPY" | "COPY_FROM":
                named[line["DST"]] = named[line["SRC"]]
                memory[line["DST"]] = memory[line["SRC"]]
            case "RELEASE":
                named.pop(line["NAME"], None)
            case other:
                raise InstanceError(f"{other} is no instruction of a log")
    results = {value for value in named.values() if value is not None}
    return calls, sizes, results
