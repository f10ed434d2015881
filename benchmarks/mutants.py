"""Mutation testing of the test suite; DeMillo, Lipton and Sayward 1978.

Source: "Hints on test data selection". 150 mutations (small errors, applied one at a time) are
sampled with a fixed seed over tracing, autodiff, replay, lowering, execution, planners and
operators. Each is located by its function and its text, not by its line number, so that it is found
after code has moved.

    python -m benchmarks.mutants cover     which tests evaluate which lines, and how long they take
    python -m benchmarks.mutants draw      choose the mutations, once
    python -m benchmarks.mutants run       try them; an interrupted run is resumed
    python -m benchmarks.mutants run --renamed benchmarks/results/mutants_renamed.json

The last finds the mutations after moves and renames, by the map in that file; see ``moved``.

A mutant runs the tests that cover its line, shortest first, until one fails (kills it); of tests
that together take more than a minute, the longest are left out. ``results/mutants.json`` has the
mutations and their outcomes, ``results/mutants.md`` the kill rates.

Not a measure of the tests as a whole: design errors are no mutations, and an equivalent mutant,
which changes no behaviour, survives every test.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import table

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "mutants.json"
COVERED = ROOT / "build" / "mutants"  # what ``cover`` measured
SEED = 25
SECONDS = 60.0  # for all tests of a mutant
STARTING = 30.0  # for pytest to start: importing what the tests import
# How many mutations of what: the files of each subject.
SUBJECTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "tracing": (
        20,
        ("tinyckpt/core/tracing.py",),
    ),
    "autodiff": (15, ("tinyckpt/core/autodiff.py",)),
    "replay": (15, ("tinyckpt/core/replay.py",)),
    "lowering": (15, ("tinyckpt/core/lowering.py", "tinyckpt/planner/model/liveness.py")),
    "execution": (15, ("tinyckpt/core/execute.py", "tinyckpt/core/backend.py")),
    "planners": (
        45,
        ("tinyckpt/planner",),
    ),
    "operators": (25, ("tinyckpt/ops",)),
}  # fmt: skip
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of the code, and what came of it.

    Attributes:
        subject: a key of ``SUBJECTS``.
        file, function: where it is; methods as ``Class.method``.
        before, after: the expression or statement, and what stands in its place.
        place: which of the same expressions of the function it is, from 0.
        outcome: "killed", "survived", "slow" (the tests did not end in time), "uncovered" (no test
            evaluates the line), "gone" (no such expression in that function any more), or "".
        test: the first test that failed.
    """

    subject: str
    file: str
    function: str
    before: str
    after: str
    place: int
    outcome: str = ""
    test: str = ""


# Mutations ---------------------------------------------------------------------------------------


def mutated(node: ast.AST) -> ast.AST | None:
    """Return what to put in place of a node; None if nothing.

    >>> ast.unparse(mutated(ast.parse("a < b", mode="eval").body))
    'a <= b'
    """
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            return ast.Compare(node.left, [COMPARED[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            return ast.BinOp(node.left, COMPUTED[type(op)](), node.right)
        case ast.BoolOp(op=op):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case ast.AugAssign(op=op) if type(op) in COMPUTED:
            return ast.AugAssign(node.target, COMPUTED[type(op)](), node.value)
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            return ast.Pass()
        case ast.Return(value=ast.expr()):
            return ast.Return(ast.Constant(None))
    return None


def sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield functions, nodes in them and what to put in their place.

    Without annotations, decorators, texts of errors, and what type checkers alone see.
    """

    def within(node: ast.AST, path: str) -> Iterator[tuple[str, ast.AST, ast.AST]]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr):
                    continue
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    yield from within(child, f"{path}.{child.name}" if path else child.name)
                    continue
                other = mutated(child) if path else None
                if other is not None:
                    yield path, child, other
                yield from within(child, path)

    yield from within(tree, "")


def located(file: Path, mutant: Mutant) -> ast.AST | None:
    """Return the node that a mutation changes; None if it is not there."""
    found = [
        node
        for path, node, other in sites(ast.parse(file.read_text(encoding="utf-8")))
        if path == mutant.function
        and ast.unparse(node) == mutant.before
        and ast.unparse(other) == mutant.after
    ]
    return found[mutant.place] if mutant.place < len(found) else None


def changed(text: str, node: ast.AST, after: str) -> str:
    """Return a file's text with something else in place of a node."""
    lines = text.encode().splitlines(keepends=True)  # columns count bytes
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = lines[node.lineno - 1], lines[node.end_lineno - 1]
    new = f"({after})" if isinstance(node, ast.expr) else after
    head, tail = first[: node.col_offset], last[node.end_col_offset :]
    lines[node.lineno - 1 : node.end_lineno] = [head + new.encode() + tail]
    return b"".join(lines).decode()


def drawn() -> list[Mutant]:
    """Return the mutations: for each subject as many as it says, from a fixed seed."""
    rng = random.Random(SEED)
    chosen = []
    for subject, (count, places) in SUBJECTS.items():
        files = sorted(
            file
            for place in places
            for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
        )
        every = []
        for file in files:
            name = str(file.relative_to(ROOT))
            seen: Counter[tuple[str, str, str]] = Counter()
            for path, node, other in sites(ast.parse(file.read_text())):
                key = path, ast.unparse(node), ast.unparse(other)
                every.append(Mutant(subject, name, *key, seen[key]))
                seen[key] += 1
        taken = {(each.file, each.function) for each in chosen}
        every = [each for each in every if (each.file, each.function) not in taken]
        chosen += rng.sample(every, count)
    return chosen


def moved(mutant: Mutant, renamed: Mapping[str, str]) -> Mutant | None:
    """Return a mutation where its code is now; None if there is no such code any more.

    Args:
        mutant: where it was drawn.
        renamed: from old to new: files, ``file:function``, expressions, and words in expressions;
            functions and expressions to "gone: " and a reason where they are no more.
    """
    place = renamed.get(f"{mutant.file}:{mutant.function}", "")
    before, after = mutant.before, mutant.after
    before, after = renamed.get(before, before), renamed.get(after, after)
    if place.startswith("gone: ") or before.startswith("gone: "):
        return None
    file, function = renamed.get(mutant.file, mutant.file), mutant.function
    if place:
        file, _, function = place.partition(":")
    for old, new in renamed.items():
        if old.isidentifier():
            before, after = (re.sub(rf"\b{old}\b", new, text) for text in (before, after))
    return replace(mutant, file=file, function=function, before=before, after=after)


# Trying ------------------------------------------------------------------------------------------


def cover() -> None:
    """Note which tests evaluate which lines, and how long each takes: once, in some minutes."""
    COVERED.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider",
        "-m", "not newcomer and not nightly and not browser and not long",
        "--cov=tinyckpt", "--cov-context=test", "--cov-report=", "--ignore=tests/viz",
        "--ignore=tests/tinyckpt/interop", f"--junitxml={COVERED}/times.xml", "tests/tinyckpt",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COVERAGE_FILE": f"{COVERED}/coverage"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


class Covered:
    """Which tests evaluate a line, the shortest first."""

    def __init__(self) -> None:
        from coverage import CoverageData  # of pytest-cov, which nothing else here needs

        self.data = CoverageData(f"{COVERED}/coverage")
        self.data.read()
        self.seconds: dict[str, float] = {}
        for case in ElementTree.parse(COVERED / "times.xml").iter("testcase"):
            path = str(case.get("classname", "")).replace(".", "/") + ".py"
            self.seconds[f"{path}::{case.get('name')}"] = float(case.get("time", 0))

    def tests(self, file: str, line: int) -> list[str]:
        """Return the tests of a line that together take at most ``SECONDS``."""
        found = self.data.contexts_by_lineno(str(ROOT / file)).get(line, ())
        names = {each.partition("|")[0] for each in found if each}
        ordered = sorted(names, key=lambda name: (self.seconds.get(name, 1.0), name))
        total, chosen = 0.0, []
        for name in ordered:
            total += self.seconds.get(name, 1.0)
            if total > SECONDS:
                break
            chosen.append(name)
        return chosen


def tried(mutant: Mutant, covered: Covered, copy: Path) -> Mutant:
    """Return what came of a mutant, in a copy of the project."""
    file = copy / mutant.file
    node = located(file, mutant) if file.exists() else None
    if node is None:
        return replace(mutant, outcome="gone")
    assert isinstance(node, ast.expr | ast.stmt)
    tests = covered.tests(mutant.file, node.lineno)
    if not tests:
        return replace(mutant, outcome="uncovered")
    text = file.read_text()
    file.write_text(changed(text, node, mutant.after))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p",
               "no:xdist", "-p", "no:cov", "--tb=no", "-o", "addopts=", *tests]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True,
            timeout=SECONDS + STARTING, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return replace(mutant, outcome="slow")
    finally:
        file.write_text(text)
    if done.returncode == 0:
        return replace(mutant, outcome="survived")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    test = failed[0].split(" ", 1)[1].partition(" - ")[0] if failed else "at import"
    return replace(mutant, outcome="killed", test=test)


def run(mutants: list[Mutant], renamed: Mapping[str, str]) -> list[Mutant]:
    """Try the mutants that have no outcome yet, on all processors; write after each."""
    covered = Covered()
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        copies = [Path(folder) / str(number) for number in range(workers)]
        for copy in copies:
            ignored = shutil.ignore_patterns(".git", ".venv", "build", "_build", "__pycache__")
            shutil.copytree(ROOT, copy, ignore=ignored)
        free = list(copies)

        def one(place: int) -> None:
            copy = free.pop()
            began = time.perf_counter()
            found = moved(mutants[place], renamed)
            gone = replace(mutants[place], outcome="gone")
            mutants[place] = gone if found is None else tried(found, covered, copy)
            free.append(copy)
            seconds = time.perf_counter() - began
            print(f"{place:3} {mutants[place].outcome:9} {seconds:5.1f} s  {mutants[place].file}")
            write(mutants)

        waiting = [place for place, each in enumerate(mutants) if not each.outcome]
        list(pool.map(one, waiting))
    return mutants


# Files -------------------------------------------------------------------------------------------


def write(mutants: list[Mutant]) -> None:
    """Write all of it, beside and in place."""
    beside = RESULT.with_suffix(".part")
    beside.write_text(json.dumps([asdict(each) for each in mutants], indent=1) + "\n")
    beside.replace(RESULT)


def report(mutants: list[Mutant]) -> None:
    """Write the table of shares, and the mutants that no test noticed."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for each in mutants:
        outcomes[each.subject][each.outcome] += 1
        outcomes["all"][each.outcome] += 1
    names = ("killed", "slow", "survived", "uncovered", "gone")
    rows = [
        [subject, *(str(found[name]) for name in names),
         f"{(found['killed'] + found['slow']) / found.total():.0%}"]
        for subject, found in outcomes.items()
    ]  # fmt: skip
    left = [
        [each.file, each.function, f"`{each.before}`", f"`{each.after}`", each.outcome]
        for each in mutants
        if each.outcome in ("survived", "uncovered", "gone")
    ]
    left = [[" ".join(cell.split()).replace("|", "\\|")[:90] for cell in row] for row in left]
    shares = table.rows(("subject", *names, "noticed"), rows)
    rest = table.rows(("file", "function", "was", "became", ""), left)
    table.write("mutants", "Mutation testing", [shares, "## Not noticed\n\n" + rest], ["pytest"])


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("cover", "draw", "run", "report"))
    parser.add_argument("--renamed", type=Path, help="a JSON object: old to new, see moved()")
    options = parser.parse_args()
    if options.what == "cover":
        cover()
    elif options.what == "draw":
        write(drawn())
    else:
        mutants = [Mutant(**each) for each in json.loads(RESULT.read_text())]
        renamed = json.loads(options.renamed.read_text()) if options.renamed else {}
        if renamed:
            mutants = [replace(each, outcome="", test="") for each in mutants]
        report(run(mutants, renamed) if options.what == "run" else mutants)


if __name__ == "__main__":
    main()
