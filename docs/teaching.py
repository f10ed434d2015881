"""Generator of the table for teachers: each lesson and each part of the course, with its goal.

Titles come from the files, and of the parts goal, prerequisites and minutes too, from the head of
each page. What no file says stands here, once: minutes are estimates.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pages

COURSE = pages.LESSONS.parent / "course"
FILE = "guide/out/teaching.txt"  # what the page includes
HEAD = re.compile(
    r"# Part (?P<number>\d+)\. (?P<title>.*?)\n.*?\*\*Goal\.\*\*\s(?P<goal>.*?)\s"
    r"\*\*Prerequisites:\*\*\s(?P<needs>.*?)\.\s\*\*Minutes:\*\*\s(?P<minutes>\d+)\.",
    re.DOTALL,
)


class Lesson(NamedTuple):
    """What a teacher has to know of a lesson; ``mistake`` is what many students believe."""

    minutes: int
    goal: str
    needs: str
    mistake: str


LESSONS = {
    1: Lesson(
        15, "Read a graph: which operator reads which value.", "Python, shapes in NumPy",
        "A graph says when things are computed. (It says what depends on what.)",
    ),
    2: Lesson(
        25, "Say which forward values an adjoint reads, and so what is saved.",
        "1; the chain rule, matrix products",
        "An adjoint returns dL/dy. (It takes dL/dy and returns dL/dx.)",
    ),
    3: Lesson(
        15, "Count live values step by step, and find the peak.", "2",
        "The peak is at the end of the forward pass. (It is in the backward pass.)",
    ),
    4: Lesson(
        20, "Derive n(n+1)/2, and why one checkpoint around everything saves one value.", "3",
        "Whatever is in a checkpoint is freed. (Until the backward pass needs all of it at once.)",
    ),
    5: Lesson(
        25, "Derive 2k+1 values and (k-1)² recomputations, and place checkpoints.", "4",
        "More checkpoints, less memory. (The curve is U-shaped.)",
    ),
    6: Lesson(
        25, "Write the recursion, and derive log₂ n + 2 values.", "5; logarithms",
        "Less memory always costs a whole forward pass. (It costs half a pass per doubling.)",
    ),
    7: Lesson(
        40, "Compute the optimum, and derive C(s+r, s).", "6; dynamic programming, binomials",
        "Halving is optimal, as in a binary search. (The two halves do not cost the same.)",
    ),
    8: Lesson(
        30, "Read a frontier, and tell a bound on saved values from a bound on the peak.", "5",
        "To save less is to need less. (What is recomputed together is live together.)",
    ),
    9: Lesson(
        35, "Find separators, and choose what to save by cost per byte.", "5; attention",
        "Keep what is expensive to compute. (Keep what is expensive per byte.)",
    ),
    10: Lesson(
        30, "Write a vjp rule, check it, and choose the one that saves less.", "2",
        "Right rules are equally good. (What a rule reads is what is saved.)",
    ),
    11: Lesson(
        30, "Account for every byte of a training step, by kind.", "3; Adam",
        "Mixed precision halves memory. (Not that of parameters, gradients and Adam together.)",
    ),
    12: Lesson(
        25, "Make randomness and state explicit, so that recomputation is exact.",
        "4; dropout, batch norm",
        "What raises no error is right. (The statistics were updated twice.)",
    ),
    13: Lesson(
        35, "Derive sbh (34 + 5as/h) term by term, and what selective recomputation frees.",
        "9, 12; transformers",
        "70 % of the memory is 70 % of the work. (Here it is half a percent of it.)",
    ),
    14: Lesson(
        30, "Explain a measurement by adding up; find what was not trained.", "11; convolutions",
        "Less memory means that checkpointing works. (Less was trained.)",
    ),
    15: Lesson(
        30, "Compute when a copy to the host is free.", "5",
        "Offloading always costs time. (A copy that computation does not wait for costs none.)",
    ),
    16: Lesson(
        30, "Approximate a derivative at two bits an element; bound the error.", "10; integrals",
        "A gradient must be exact to descend. (It must point down.)",
    ),
    17: Lesson(
        25, "Tell bias from variance in a quantised gradient.", "10; expectation and variance",
        "The rounding with the smaller error is better. (Bias does not average out.)",
    ),
    18: Lesson(
        30, "Compute bubble and memory of a pipeline, and place recomputation in the bubble.", "4",
        "1F1B is faster than GPipe. (It takes less memory; its bubble is the same.)",
    ),
    19: Lesson(
        30, "Predict, measure and plan a PyTorch model.", "9; PyTorch",
        "Wrap every block. (As many as the budget asks for.)",
    ),
    20: Lesson(
        25, "Tell live bytes from addresses, and plan addresses for known lifetimes.", "5",
        "Free memory is usable memory. (Only in one piece.)",
    ),
}  # fmt: skip
# Of the parts of the course, whose pages say the rest.
MISTAKES = {
    0: "The cotangent of a value read twice is the last contribution. (It is the sum.)",
    1: "Differentiation needs numbers. (It needs shapes: it adds operators to a graph.)",
    2: "A value may be freed once it has been read. (Once its last reader has run.)",
    3: "Recompute-all recomputes every value for every adjoint. (Not what is at hand.)",
    4: "Evict the largest value. (What it costs to recompute counts, too, and when it was read.)",
    5: "Checkpoints lie at equal distances. (Before the middle, and the optimum is not unique.)",
    6: "The products with weights fill the memory. (The core of attention does, at long s.)",
}


def write(app: Any) -> None:
    """Write the table into Sphinx's source folder."""
    (Path(app.srcdir) / FILE).write_text(table(), encoding="utf-8")


def table() -> str:
    """Return the table of all lessons and parts as Markdown."""
    rows = [f"| {' | '.join(row)} |" for row in [*lesson_rows(), *part_rows()]]
    head = "| Lesson or part | Goal | Needs | Minutes | A common misconception (and what is true) |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows]) + "\n"


def lesson_rows() -> list[list[str]]:
    """Return a row for each lesson, linked to its page if it has one."""
    rows = []
    for path in pages.lessons():
        title = path.read_text("utf-8").split("\n", 2)[1].removeprefix("# # ")
        minutes, goal, needs, mistake = LESSONS[int(path.stem[:2])]
        if pages.has_page(path):
            title = f"[{title}](/lessons/{path.stem}.md) ({notebook_link(path.stem)})"
        title += f' (<a href="{pages.SLIDES}/{path.stem}.html">handout</a>)'
        rows.append([title, goal, needs, str(minutes), mistake])
    return rows


def notebook_link(name: str) -> str:
    """Return the link that downloads a notebook, from a page at the top of the site."""
    return f'<a href="{pages.NOTEBOOKS}/{name}.ipynb" download>notebook</a>'


def part_rows() -> list[list[str]]:
    """Return a row for each part of the course, from the head of its page."""
    rows = []
    for path in sorted(COURSE.glob("part_[0-9]*/README.md")):
        found = HEAD.match(path.read_text("utf-8"))
        if found is None:
            raise ValueError(f"{path}: expected a title, Goal, Prerequisites and Minutes")
        said = {key: text.replace("\n", " ") for key, text in found.groupdict().items()}
        title = f"[Part {said['number']}](/course.md). {said['title']} "
        title += f"({notebook_link(path.parent.name)})"
        mistake = MISTAKES[int(said["number"])]
        rows.append([title, said["goal"], said["needs"], said["minutes"], mistake])
    return rows
