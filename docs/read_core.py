"""Literate programming, after Knuth: the thirteen files of ``tinyckpt/core`` as one page.

The order and a sentence for each file are the list in CONTRIBUTING.md. Prose is what the files say
of themselves: module docstrings and comments between sections; code is theirs to the letter. After
each file stands an example, mostly of a chain of four layers; its output is printed by the code
when the site is built.
"""

from __future__ import annotations

import ast
import re
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LISTED = re.compile(r"^\d+\. \[(\w+)\]\(tinyckpt/core/\w+\.py\): (.+(?:\n   .+)*)", re.MULTILINE)
EXTENSIONS = re.compile(r"^Extensions fill tables of the core.+\n(?:.+\n)*", re.MULTILINE)
# A section of a file: a heading between rules, or after a rule with a paragraph below it.
SECTION = re.compile(
    r"^# (?P<inline>[^-\n].*?) -{5,}\n|^# -{50,}\n(?P<block>(?:#.*\n)+)", re.MULTILINE
)
HEAD = """# Read the core

These {count} files, {lines:,} lines, are the engine: a function becomes a graph, its backward pass
joins the graph, a policy becomes a schedule, and the schedule runs. [The course](course.md) builds
the same engine in 200 lines, `mini.py`; its page says what each file here adds, and why.

The path through the files:

1. A function becomes a graph (`tracing`) of values and operators (`graph`). Each operator applies a
   `primitive`. The graph gets its backward pass (`autodiff`).
2. A policy (`policies`, with `cuts`) chooses an *order*: the operators as they are evaluated, where
   one that occurs again is a recomputation. `costs` says what an evaluation costs and what a value
   weighs.
3. The order becomes a `schedule`, a list of steps, when frees are added (`lowering`).
4. The schedule runs without arrays (`replay`) or with those of an array library (`execute`,
   `backend`). Both return a `trace`.

Words that are used before they are explained, or set outside of the core:

- *residuals* are the forward values that the backward pass reads (`autodiff`);
- `xp` is the array library that a kernel is called with (`backend`);
- a *template* is the nesting of arguments or results, with ids as its leaves (`base/tree`);
- `regions` are entered by `tc.checkpoint` (`planner/manual/regions`), `once` is set by `tc.once`
  (`ops/non_recomputable`);
- `stand_ins` and `replaced` are of derivatives within a function (`training/transformations`);
- `scratch` is what extensions remember during one build or run, `pending` how to wait for their
  copies (`storage/offload_steps`).

Text and code below are those of the files. Their own examples use `tc.networks.chain(n)`: layers
`f1` to `fn`; `l`, the cotangent of fn's value; the layers' backward operators `bn` to `b1`. (The
loss is half the squared norm of fn's value, and is never computed; `l` also reads the constant 1.0,
a value of its own, so that ids skip one there.) The example after each file mostly uses this
chain of four layers and a `sum`, so its counts are not those of `chain(4)`:

```python
{chain}
```
"""
TAIL = """## Extending the core

{extensions} Core imports none of them: `import tinyckpt` imports their
packages, which fill the tables (`install` of each file):

{tables}

The entries of core are NumPy, and `replay` for `MACHINE`, by which a schedule is printed. A
legaliser makes an order legal before frees are added: it delays updates past the readers of old
values, or drops what may not be evaluated again. `tc.plan` looks a policy up in `tc.POLICIES`:
`store_all`, `recompute_all` and `sqrt_n` of `policies`, and those of `tinyckpt/planner`; `tc.run`
binds the arguments, moves them to the backend and executes.

To add a kind of step:

1. Write its class. One that evaluates an operator derives from `Update`, as `InPlace` does in
   `codegen/in_place`. One that names a value, as `Offload` does, is one more `Step` in `schedule`,
   is in the two checks of `Schedule`, and in `Trace.resident_at` if it makes the value resident.
2. Emit it. `lowering` emits `Compute`, `Free` and `Update`; other steps are put into a schedule
   that is legal without them, as `insert_offloads` of `storage/offload_steps` and
   `forward_in_place` of `codegen/in_place` do.
3. Enter a rule for the class in `STEP_RULES` of `replay`, which counts by shapes, and one in
   `STEP_RULES` of `execute`, which counts by arrays; a test compares their traces.

That is enough to replay, print and run such a schedule. The packages that save, compile or draw
schedules (`documents/schedules`, `codegen`, `viz`) name the kinds that they know.
"""
CHAIN = """
import numpy as np
import tinyckpt as tc

def loss(x):
    for layer in range(4):
        x = tc.tanh(x)
    return tc.sum(x)

forward = tc.build(loss, tc.Spec((8, 8)))
graph = tc.differentiate(forward)
""".strip()
TABLES = (
    ("primitive", "ARITHMETIC"),
    ("autodiff", "RESIDUAL_RULES"),
    ("lowering", "LEGALISERS"),
    ("backend", "BACKENDS"),
    ("schedule", "MACHINE"),
    ("replay", "STEP_RULES"),
    ("replay", "OPERATOR_CHECKS"),
    ("replay", "RESULT_CHECKS"),
    ("execute", "STEP_RULES"),
    ("execute", "KERNEL_GUARDS"),
)
STAGES = {
    "graph": "print(forward)",
    "primitive": """
tanh = forward.operators[0].primitive
print(tanh.name, *tanh.infer(tc.Spec((8, 8))))
print(tanh.forward(np, np.zeros(2)))
""",
    "tracing": """
def shown(x):
    print("called once, with", x)
    return loss(x)

print(tc.build(shown, tc.Spec((8, 8)), graph_name="loss") == forward)
""",
    "autodiff": "print(graph)",
    "schedule": """
by_hand = [tc.Compute(0), tc.Compute(1), tc.Free(1)]
print(*by_hand, sep="\\n")
""",
    "costs": """
costs = tc.cost.evaluations(graph)
print(costs.operators)
print({node.name: costs.data[node.id] for node in graph.data})  # sum_1_vjp: a view of 1.0
""",
    "cuts": """
from tinyckpt.core.cuts import retaining_order
print([graph.data[data].name for data in tc.separators(graph)])
kept = [node.id for node in graph.data if node.name == "tanh_2"]
order = retaining_order(graph, kept, reuse=True)
print([graph.operators[index].name for index in order])
""",
    "lowering": """
schedule = tc.from_order(graph, order)
print(*schedule.steps, sep="\\n")
""",
    "policies": """
for policy in ("store_all", "recompute_all", "sqrt_n"):
    planned = tc.plan(graph, policy)
    print(f"{tc.replay(planned).summary()}; {planned.note}")
# recompute_all evaluates all four again for tanh_4_vjp: sum_1_vjp, before it, has not read tanh_4.
# sqrt_n saves the last segment too, tanh_3 and tanh_4: 11 evaluations; with tanh_2 alone, 13.
""",
    "backend": """
from tinyckpt.core.backend import bind_sources, get_backend
print(get_backend("numpy").xp.__name__)
bound = bind_sources(graph, (np.ones((8, 8)),))
print({graph.data[data].name: array.shape for data, array in bound.items()})
try:
    tc.run(schedule, np.ones((8, 9)))
except tc.GraphError as error:
    print(error)
""",
    "trace": """
trace = tc.replay(schedule)
print(trace.nodes)
print(trace.summary())
""",
    "replay": """
print(tc.replay(tc.plan(graph, "sqrt_n")))
try:
    tc.replay(tc.Schedule(graph, (tc.Compute(1),), "mine"))
except tc.ScheduleError as error:
    print(error)
""",
    "execute": """
result = tc.run(schedule, np.ones((8, 8)))
print(result.value, result.gradients[0, 0], result.trace == trace)
""",
}


def write(app: Any) -> None:
    """Write the page into Sphinx's source folder."""
    (Path(app.srcdir) / "read_core.md").write_text(page(), encoding="utf-8")


def listed() -> dict[str, str]:
    """Return the files in reading order, by name, with the sentence on each."""
    found = LISTED.findall(contributing())
    return {name: " ".join(sentence.split()) for name, sentence in found}


def contributing() -> str:
    """Return the text of CONTRIBUTING.md."""
    return (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def page() -> str:
    """Return the page: each file in turn, and an example after it."""
    names: dict[str, Any] = {}
    exec(CHAIN, names)
    (extensions,) = EXTENSIONS.findall(contributing())
    sources = {
        name: (ROOT / "tinyckpt" / "core" / f"{name}.py").read_text(encoding="utf-8")
        for name in listed()
    }
    lines = sum(len(source.splitlines()) for source in sources.values())
    parts = [HEAD.format(count=len(sources), chain=CHAIN, lines=lines)]
    for number, (name, sentence) in enumerate(listed().items(), 1):
        source = sources[name]
        parts += [f"## {number}. {name}", f"**{sentence}**", *told(source)]
        example = STAGES[name].strip()
        parts += ["### Example", fenced(example), fenced(output(example, names))]
    parts.append(TAIL.format(extensions=extensions.strip(), tables=tables()))
    return "\n\n".join(parts) + "\n"


def tables() -> str:
    """Return the tables of the core that extensions fill, each with the files that do."""
    lines = ["| table of the core | filled by |", "| --- | --- |"]
    for core, name in TABLES:
        table = getattr(import_module(f"tinyckpt.core.{core}"), name)
        rules = table.values() if isinstance(table, dict) else table
        files = {
            f"`{rule.__module__.removeprefix('tinyckpt.').replace('.', '/')}`" for rule in rules
        }
        lines.append(f"| `{name}` of {core} | {', '.join(sorted(files))} |")
    return "\n".join(lines)


def told(source: str) -> list[str]:
    """Return a file as prose and code, in its own order."""
    docstring = ast.parse(source).body[0]
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    assert docstring.end_lineno is not None
    code = "".join(source.splitlines(keepends=True)[docstring.end_lineno :])
    parts, done = [prose(str(docstring.value.value))], 0
    for section in SECTION.finditer(code):
        parts.append(fenced(code[done : section.start()], "python"))
        heading, _, rest = (section["inline"] or uncommented(section["block"])).partition("\n")
        # A heading that is a sentence ends at its first colon; what follows is prose.
        title, _, more = heading.partition(": ")
        more = more[:1].upper() + more[1:]
        parts += [f"### {title.rstrip('.').replace('``', '`')}", prose(f"{more}\n{rest}".strip())]
        done = section.end()
    parts.append(fenced(code[done:], "python"))
    return [part for part in parts if part]


def uncommented(block: str) -> str:
    """Return the text of a block of comments."""
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in block.splitlines())


def prose(text: str) -> str:
    """Return a docstring's text as Markdown: doctests as code, names in single backticks."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith((">>>", "    ")):
            paragraphs.append(fenced(paragraph, "pycon"))
        else:
            paragraphs.append(paragraph.replace("``", "`").removesuffix("::"))
    return "\n\n".join(paragraphs)


def fenced(code: str, language: str = "") -> str:
    """Return a block of code, or nothing for an empty one."""
    code = code.strip("\n")
    language = language or ("python" if code in map(str.strip, STAGES.values()) else "text")
    return f"````{language}\n{code}\n````" if code.strip() else ""


def output(code: str, names: dict[str, Any]) -> str:
    """Run code, with the names that earlier code defined, and return what it prints."""
    printed = StringIO()
    with redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


if __name__ == "__main__":
    print(page())
