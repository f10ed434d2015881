"""Hand your schedule to tinyckpt: it replays it, and draws it. Draw your plans of part 6.

``replayed``: in goes a graph of part 1, a schedule of it and the trace that ``run`` of part 2
returned; out comes a trace of tinyckpt, which every picture of ``tinyckpt.viz`` takes. The replay
checks each step and counts values and bytes from their sizes alone, so that two machines have to
agree. ``bars``: in go bytes by kind, out comes a chart.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tinyckpt.viz.charts import style
from tinyckpt.viz.theme import css

import tinyckpt as tc


def replayed(
    graph: Any, steps: Any, trace: Any, title: str = "mine", checkpoints: Iterable[int] = ()
) -> tc.Trace:
    """Replay a schedule with tinyckpt, and return its trace.

    Args:
        graph: a graph of part 1.
        steps: a schedule of it, which computes every operator at least once.
        trace: what ``run`` of part 2 returned for it.
        title: the name of the schedule in pictures.
        checkpoints: ids of the values that the policy chose to save; pictures mark them.

    Raises:
        ScheduleError: if a step is illegal; says which, and why.
        ValueError: if the replay counts otherwise than ``run`` did; says where first.
    """
    sizes = {}
    before = 0
    for (verb, index), after in zip(steps, trace.live_bytes, strict=True):
        if verb == "compute":
            sizes[graph.operators[index].output] = after - before
        before = after
    drawn = tinyckpt_graph(graph, sizes)
    # Values of the drawn graph have ids in this order.
    values = [*graph.sources, *(operator.output for operator in graph.operators)]
    ids = {data: position for position, data in enumerate(values)}
    taken = [
        tc.Compute(index) if verb == "compute" else tc.Free(ids[index]) for verb, index in steps
    ]
    kept = tuple(sorted(ids[data] for data in checkpoints))
    found = tc.replay(tc.Schedule(drawn, tuple(taken), title, checkpoints=kept))
    if found.evaluations != trace.evaluations:
        raise ValueError(f"{trace.evaluations} evaluations; the replay has {found.evaluations}")
    for what, mine, theirs in (
        ("values", trace.live_values, found.nodes),
        ("bytes", trace.live_bytes, found.live_bytes),
    ):
        for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one != other:
                raise ValueError(f"step {step}: {one} live {what}; the replay has {other}")
    return found


def tinyckpt_graph(graph: Any, sizes: dict[int, int]) -> tc.Graph:
    """Return a graph of part 1 as one of tinyckpt, whose values are named after their operators.

    On a chain these are the names of the pages: f1, l, b1. Elsewhere forward operators are numbered
    by kind, and backward ones have the name of the forward operator that they belong to.
    """
    producer = {operator.output: index for index, operator in enumerate(graph.operators)}
    mirrors = mirrors_of(graph)
    names = names_of(graph, mirrors)
    values = {data: f"v{data}" for data in graph.sources}
    values |= {op.output: name for op, name in zip(graph.operators, names, strict=True)}
    operators = []
    for index, operator in enumerate(graph.operators):
        entry: dict[str, Any] = {
            "name": names[index],
            "kind": operator.kind,
            "inputs": [values[data] for data in operator.inputs],
            "outputs": [values[operator.output]],
        }
        if index >= graph.forward_count:
            entry["phase"] = "backward"
            if index in mirrors:
                entry["adjoint_of"] = names[mirrors[index]]
        operators.append(entry)
    gradients = [data for data in graph.results if producer[data] >= graph.forward_count]
    document = {
        "schema": "tinyckpt.graph",
        "version": 2,
        "name": "my graph",
        "data": [{"name": name, "bytes": sizes.get(data, 0)} for data, name in values.items()],
        "operators": operators,
        "results": [values[data] for data in graph.results if data not in gradients],
        "gradients": [values[data] for data in gradients],
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return tc.load_graph(path)


def mirrors_of(graph: Any) -> dict[int, int]:
    """Return of backward operators the forward operator that they belong to, where there is one.

    A vjp belongs to the last forward operator of its kind that has the forward values it reads as
    inputs or output, and no vjp of the same kind yet. A sum of contributions belongs where the
    later one does. Without the loss itself, its vjp belongs to none.
    """
    producer = {operator.output: index for index, operator in enumerate(graph.operators)}
    mirrors: dict[int, int] = {}
    taken: Counter[tuple[str, int]] = Counter()
    for index in range(graph.forward_count, len(graph.operators)):
        operator = graph.operators[index]
        kind = operator.kind.partition("_vjp")[0]
        if kind == "add":
            later = producer.get(operator.inputs[1])
            if later in mirrors:
                mirrors[index] = mirrors[later]
            continue
        read = {x for x in operator.inputs if producer.get(x, -1) < graph.forward_count}
        read -= graph.constants.keys()
        most = 2 if operator.kind == "multiply" else 1  # its two rules add the same kind
        for place in reversed(range(graph.forward_count)):
            forward = graph.operators[place]
            fits = forward.kind == kind and read <= {*forward.inputs, forward.output}
            if fits and taken[operator.kind, place] < most:
                taken[operator.kind, place] += 1
                mirrors[index] = place
                break
    return mirrors


def names_of(graph: Any, mirrors: Mapping[int, int]) -> list[str]:
    """Return the names of the operators, all different."""
    n = graph.forward_count
    kinds = [operator.kind for operator in graph.operators]
    if kinds == ["tanh"] * n + ["half_squared_norm_vjp"] + ["tanh_vjp"] * n:
        return [f"f{i + 1}" for i in range(n)] + ["l"] + [f"b{i}" for i in range(n, 0, -1)]
    counted: Counter[str] = Counter()
    names: list[str] = []
    for index, kind in enumerate(kinds):
        stem = f"{names[mirrors[index]]}_vjp" if index in mirrors else kind
        counted[stem] += 1
        is_first_vjp = index in mirrors and counted[stem] == 1
        names.append(stem if is_first_vjp else f"{stem}_{counted[stem]}")
    return names


def bars(plans: Mapping[str, tuple[Mapping[str, int], str]], path: str, title: str) -> Path:
    """Draw the bytes that plans keep in memory, one bar per plan, as PNG, SVG or PDF.

    Args:
        plans: of each name, the bytes of each kind, and a note. The hatched rest of a bar is what
            the largest plan keeps and this one recomputes.
        path: of the file; its suffix is the format.
        title: of the chart.
    """

    def drawn(colours: Any) -> Any:
        from matplotlib.patches import Patch

        figure = style.new_figure(colours, 1.1 + 0.5 * len(plans))
        axis = figure.subplots()
        style.style_axes(axis, colours)
        style.heading(axis, colours, title, "bytes of saved tensors at the peak, by kind")
        totals = {name: sum(kinds.values()) for name, (kinds, _) in plans.items()}
        most = max(totals.values())
        first, _ = next(iter(plans.values()))
        order = sorted(first, key=first.__getitem__, reverse=True)
        unit, unit_name = style.byte_unit(most)
        again = style.hatched(colours.recomputed, colours.kept)
        edge = {"edgecolor": css(colours.panel), "linewidth": 1}
        for row, (name, (kinds, note)) in enumerate(plans.items()):
            left = 0
            for kind in order:
                nbytes = kinds.get(kind, 0)
                axis.barh(row, nbytes / unit, 0.6, left / unit, color=css(colours.kept), **edge)
                is_wide = nbytes > 0.016 * len(kind) * most  # enough for the word
                if is_wide or row == 0:  # if not, the word stands above the first bar
                    axis.text(
                        (left + (nbytes / 2 if is_wide else 0)) / unit, row - 0.45 * (not is_wide),
                        kind, ha="center" if is_wide else "left", va="center", fontsize=7.5,
                        color=css(colours.kept_label if is_wide else colours.muted),
                    )  # fmt: skip
                left += nbytes
            axis.barh(row, (most - left) / unit, 0.6, left / unit, **again)
            axis.text(
                1.02 * most / unit, row, f"{totals[name] / unit:.1f} {unit_name}, {note}",
                va="center", color=css(colours.ink), fontsize=style.SMALL,
            )  # fmt: skip
        axis.set_yticks(range(len(plans)), list(plans), color=css(colours.ink), fontsize=9)
        axis.tick_params(axis="y", length=0)
        axis.set_xlim(0, 1.36 * most / unit)
        axis.set_xticks([tick for tick in axis.get_xticks() if 0 <= tick <= most / unit])
        axis.set_xlabel(unit_name, loc="left")
        axis.set_ylim(-0.7, len(plans) - 0.5)
        axis.invert_yaxis()
        saved = Patch(color=css(colours.kept), label="in memory")
        style.legend(axis, colours, [saved, Patch(label="recomputed", **again)])
        figure.tight_layout()
        return figure

    return style.write(path, "light", style.WIDTH, drawn)
