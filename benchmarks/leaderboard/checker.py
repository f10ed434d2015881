"""Checker of rematerialization schedules: legality, cost, peak and order, from two text files.

    python checker.py GRAPH SCHEDULE

It imports nothing of tinyckpt, and stands for no planner. The graph is one line per operator, in
the published order of evaluation; each operator makes one value, of the same number:

    ID COST BYTES forward|backward result|value INPUT INPUT ...

The schedule is one line per step: ``compute ID`` or ``free ID``. Empty lines, and what follows a
``#``, are ignored. A step is legal if all inputs of an operator are live when it is computed and
its own value is not, and only live values are freed; at the end all results are live. The peak is
the largest sum of bytes of the live values, inputs and output included, while an operator is
computed. Printed is one line: ``cost C peak P order given`` (or ``free``: first evaluations in
another order), or ``illegal: line N: why``; the exit status is then 1.
"""

import sys
from collections.abc import Iterator


class IllegalError(Exception):
    """The first illegal step, or a malformed line: where and why."""


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers and words of the lines that say something."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            yield number, words


def check(graph: str, schedule: str) -> str:
    """Return cost, peak and order of a schedule; raise at its first illegal step."""
    cost: list[int] = []
    size: list[int] = []
    inputs: list[list[int]] = []
    results: list[int] = []
    for number, words in rows(graph):
        name, price, nbytes, phase, kind, *reads = [*words, *[""] * (5 - len(words))]
        known = all(word.isdecimal() for word in (name, price, nbytes, *reads))
        known = known and int(name) == len(cost) and all(int(read) < len(cost) for read in reads)
        if not known or phase not in ("forward", "backward") or kind not in ("result", "value"):
            raise IllegalError(f"graph, line {number}: not the operator {len(cost)}")
        cost.append(int(price))
        size.append(int(nbytes))
        inputs.append([int(read) for read in reads])
        results += [int(name)] * (kind == "result")
    live: set[int] = set()
    first: dict[int, None] = {}
    total = memory = peak = 0
    for number, words in rows(schedule):
        if len(words) != 2 or words[0] not in ("compute", "free") or not words[1].isdecimal():
            raise IllegalError(f"line {number}: not a step: {' '.join(words)[:40]}")
        own = int(words[1])
        if own >= len(cost):
            raise IllegalError(f"line {number}: there is no operator {own}")
        if words[0] == "free":
            if own not in live:
                raise IllegalError(f"line {number}: {own} is freed and not live")
            live.remove(own)
            memory -= size[own]
            continue
        missing = [read for read in inputs[own] if read not in live]
        if missing:
            raise IllegalError(f"line {number}: {own} reads {missing[0]}, which is not live")
        if own in live:
            raise IllegalError(f"line {number}: {own} is computed and still live")
        live.add(own)
        first[own] = None
        memory += size[own]
        total += cost[own]
        peak = max(peak, memory)
    lost = [result for result in results if result not in live]
    if lost:
        raise IllegalError(f"the end: the result {lost[0]} is not live")
    order = "given" if list(first) == sorted(first) else "free"
    return f"cost {total} peak {peak} order {order}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python checker.py GRAPH SCHEDULE")
    try:
        with open(sys.argv[1], encoding="utf-8") as one, open(sys.argv[2], encoding="utf-8") as two:
            print(check(one.read(), two.read()))
    except IllegalError as error:
        sys.exit(f"illegal: {error}")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(str(error))
