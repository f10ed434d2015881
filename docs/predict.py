"""Questions that a page asks with the mouse, a finger or the keyboard.

Guess the peak, draw the memory, place the checkpoints, click what an adjoint needs. What a reader
can choose is little enough to be replayed here, all of it: ``predict-data.js`` holds what each
choice comes to, and the scripts show it, without replaying anything themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tinyckpt as tc

KINDS = ("peak", "draw", "place", "needs")
SCRIPTS = ("predict-data.js", *(f"predict/{name}.js" for name in ("base", *KINDS, "start")))
LAYERS = 4  # of the chain whose peak is guessed in lesson 3
WRAPPED = 6  # of the chain whose memory is drawn in lesson 4
PLACED = 9  # of the chain on which checkpoints are placed: each set of them is in the data
SEGMENTS = (12, 3)  # layers and segments of the chain in lesson 5 that is computed again in part
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
NEEDS_SCRIPTS = """(This needs scripts. Without them, write your answer down, and then open the one
 that is folded away below.)"""
PEAK = f"""<div class="predict" data-predict="peak"><p>Or draw it: set the line as high as you think
 that the memory gets, and the mark to where. {NEEDS_SCRIPTS}</p></div>"""
DRAW = f"""<div class="predict" data-predict="draw"><p>Or draw it, step by step.
 {NEEDS_SCRIPTS}</p></div>"""
NEEDS = """<div class="predict" data-predict="needs" data-of="{}"><p>Or click on it, in the graph.
 {}</p></div>"""
PLACE = """## And now you

Between all and nothing there is much room. Before the next lesson says where checkpoints belong:
where would you put them? A chain of 9 layers; what you do not keep is computed again once, when the
backward half first reads it.

<div class="predict" data-predict="place"><p>(To try it out, this page needs scripts. On paper, take
 lesson 5 for the answer.)</p></div>"""
# Below a question, which is named after what takes the answer.
ASKED = {
    ("02_backward_is_more_graph", "my_values"): [NEEDS.format("reads", NEEDS_SCRIPTS)],
    ("03_store_all", "my_guess"): [PEAK],
    ("04_recompute_all", "my_peak"): [DRAW],
    ("05_sqrt_n", "my_layers"): [NEEDS.format("again", NEEDS_SCRIPTS)],
}
LAST = {"04_recompute_all": [PLACE]}  # at its end, before the next one answers


def add_files(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Have a page that asks with the mouse load what that takes; no other one."""
    if "data-predict=" in context.get("body", ""):
        app.add_css_file("predict/predict.css")
        for script in SCRIPTS:
            app.add_js_file(script, defer="defer")


def write_data(app: Any, error: Exception | None) -> None:
    """Write the data beside the scripts that read them."""
    if error is None and app.builder.format == "html":
        path = Path(app.outdir) / "_static" / SCRIPTS[0]
        path.write_text(f"const PREDICT = {json.dumps(data())};\n", encoding="utf-8")


def data() -> dict[str, Any]:
    """Return all that the questions of all pages ask."""
    return {
        "peak": peak_data(),
        "draw": draw_data(),
        "place": place_data(),
        "needs": {"reads": reads_data(), "again": again_data()},
    }


def peak_data() -> dict[str, Any]:
    """Return what is live when under store-all, and what each step does."""
    schedule = tc.plan(tc.networks.chain(LAYERS), "store_all")
    trace = tc.replay(schedule)
    lines = str(schedule).splitlines()[: len(trace.steps)]
    steps = [" ".join(line.partition(" live ")[0].split()[1:]) for line in lines]
    return {"steps": steps, "nodes": written(trace.nodes)}


def draw_data() -> dict[str, Any]:
    """Return what is live at every evaluation, if one checkpoint is around the whole chain."""
    trace = tc.replay(tc.plan(tc.networks.chain(WRAPPED), "retain", keep=[]))
    evaluated = [i for i, step in enumerate(trace.steps) if isinstance(step, tc.Compute)]
    return {
        "question": f"Or draw it, for {WRAPPED} layers: the memory while each operator is "
        "evaluated. All is dropped on the way forward, and computed again once.",
        "steps": names_of(trace, evaluated),
        "nodes": written(tuple(trace.nodes[i] for i in evaluated)),
    }


def place_data() -> dict[str, Any]:
    """Return what every set of checkpoints comes to; bit i-1 of its number says that fi is kept."""
    chain = tc.networks.chain(PLACED)
    names = [f"f{layer}" for layer in range(1, PLACED + 1)]
    found = []
    for number in range(2**PLACED):
        keep = [name for bit, name in enumerate(names) if number >> bit & 1]
        found.append(tc.replay(tc.plan(chain, "retain", keep=keep)))
    policy = tc.plan(chain, "sqrt_n")
    trace = tc.replay(policy)
    kept = sorted(chain.data[data].name for data in policy.checkpoints)
    return {
        "names": names,
        "nodes": [written(trace.nodes) for trace in found],
        "evaluations": [trace.evaluations for trace in found],
        "policy": {"kept": kept, "nodes": written(trace.nodes), "evaluations": trace.evaluations},
    }


def reads_data() -> dict[str, Any]:
    """Return what adjoints of different operators read: of lesson 2, before it says so."""

    def net(w: tc.Var, x: tc.Var, u: tc.Var) -> tc.Var:
        return tc.sum(tc.exp(tc.sin(x @ w)) * u)

    square = tc.Spec((4, 4))
    graph = tc.differentiate(tc.build(net, square, square, square))
    forward = [node for node in graph.data if node.role != "cotangent" and node.name != "1.0"]
    letters = dict(zip("wxuzsep", (node.id for node in forward), strict=False))
    shown = {node: letter for letter, node in letters.items()}
    # An adjoint returns the cotangent of what its operator reads.
    back = {"p": "sum_1", "e": "multiply_1", "s": "exp_1", "z": "sin_1", "w": "matmul_1"}
    adjoints = {o.name: o for o in graph.operators[graph.forward_count :]}
    cotangents = {letter: adjoints[f"{name}_vjp"] for letter, name in back.items()}
    shown |= {o.outputs[0]: f"d{letter}" for letter, o in cotangents.items()}
    why = {
        "s": "exp is its own derivative: its adjoint reads its output, and s itself is not read.",
        "z": "The derivative of sin is cos, of the input: its adjoint reads z, and s is not read.",
        "w": "It is x.T @ dz: a product's adjoint reads the other factor, never the product. So of "
        "x, z, s, e and p nobody reads s and p on the way back: they need not be kept.",
    }
    rounds = []
    for letter, reason in why.items():
        right = [shown[data] for data in cotangents[letter].inputs]
        target = f"d{letter}"
        rounds.append(
            {
                "question": f"what does the adjoint read which returns {target}, the gradient of "
                f"{letter}?",
                "target": target,
                "right": right,
                "held": [],
                "edges": [[name, target] for name in right],
                "truth": f"{target} is computed from {' and '.join(right)}.",
                "why": reason,
            }
        )
    columns = [[letter, f"d{letter}" if letter in back else ""] for letter in "xwzseup"]
    return {"columns": columns, "rounds": rounds}


def again_data() -> dict[str, Any]:
    """Return what sqrt-n computes again for some adjoints of a chain: of lesson 5."""
    layers, segments = SEGMENTS
    trace = tc.replay(tc.plan(tc.networks.chain(layers), "sqrt_n", segments=segments))
    graph, steps = trace.graph, trace.steps
    why = {
        11: "The last segment is still there: one goes back from where one has come to.",
        7: "From the checkpoint f4 on, up to f7, which b7 reads.",
        6: "f6 came by on the way to f7, and was kept: a segment is computed again once.",
    }
    rounds = []
    for layer, reason in why.items():
        target = f"b{layer}"
        due = names_of(trace, range(len(steps))).index(target)
        last = max(i for i in range(due) if is_adjoint(trace, i))
        names = names_of(trace, range(last + 1, due))
        again = [
            name
            for name, step in zip(names, steps[last + 1 : due], strict=True)
            if isinstance(step, tc.Compute)
        ]
        held = [graph.data[data].name for data in trace.resident_at(last)]
        rounds.append(
            {
                "question": f"f4 and f8 are kept, and b{layer + 1} has just been computed. What "
                f"has to be computed again before {target}?",
                "target": target,
                "right": again,
                "held": [name for name in ("f4", "f8") if name in held],
                "edges": [pair for name in (*again, target) for pair in reads_of(graph, name)],
                "truth": f"Computed again before {target}: {', '.join(again) or 'nothing'}.",
                "why": reason,
            }
        )
    columns = [[f"f{layer}", f"b{layer}"] for layer in range(1, layers + 1)]
    return {"columns": columns, "rounds": rounds}


def reads_of(graph: tc.Graph, name: str) -> list[list[str]]:
    """Return pairs of what an operator of a chain reads, and its name."""
    operator = next(operator for operator in graph.operators if operator.name == name)
    return [[graph.data[data].name, name] for data in operator.inputs]


def is_adjoint(trace: tc.Trace, step: int) -> bool:
    """Return whether a step evaluates an operator of the backward half."""
    done = trace.steps[step]
    return isinstance(done, tc.Compute) and done.operator >= trace.graph.forward_count


def names_of(trace: tc.Trace, steps: Any) -> list[str]:
    """Return the names of what steps evaluate; nothing for one that evaluates nothing."""
    done = [trace.steps[step] for step in steps]
    operators = trace.graph.operators
    return [operators[step.operator].name if isinstance(step, tc.Compute) else "" for step in done]


def written(counts: tuple[int, ...]) -> str:
    """Return small numbers as one digit each, of base 36."""
    return "".join(DIGITS[count] for count in counts)
