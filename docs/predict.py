"""Generator of the lessons' interactive questions, answered by mouse, touch or keyboard.

Guess the peak, draw the memory curve, place the checkpoints, click the inputs of an adjoint. The
choices are few enough to replay all of them here: ``predict-data.js`` stores the result of each
choice, and the scripts display it without replaying anything.
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
SEGMENTS = (12, 3)  # layers and segments of the chain in lesson 5 that is recomputed in part
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
NEEDS_SCRIPTS = """(This needs scripts. Without them, write down your answer, then expand the one
 below.)"""
PEAK = f"""<div class="predict" data-predict="peak"><p>Or draw it: set the line to the peak
 that you expect, and the mark to its step. {NEEDS_SCRIPTS}</p></div>"""
DRAW = f"""<div class="predict" data-predict="draw"><p>Or draw it, step by step.
 {NEEDS_SCRIPTS}</p></div>"""
NEEDS = """<div class="predict" data-predict="needs" data-of="{}"><p>Or click the values in the
 graph. {}</p></div>"""
PLACE = """## Place the checkpoints

Store-all and recompute-all are the two extremes. Before the next lesson gives an answer: where
would you place checkpoints in a chain of 9 layers? An evicted value is recomputed once, when the
backward pass first reads it.

<div class="predict" data-predict="place"><p>(To try it, this page needs scripts. On paper, lesson 5
 has the answer.)</p></div>"""
# By lesson and the variable that takes the answer: shown below the question.
ASKED = {
    ("02_backward_is_more_graph", "my_values"): [NEEDS.format("reads", NEEDS_SCRIPTS)],
    ("03_store_all", "my_guess"): [PEAK],
    ("04_recompute_all", "my_peak"): [DRAW],
    ("05_sqrt_n", "my_layers"): [NEEDS.format("again", NEEDS_SCRIPTS)],
}
LAST = {"04_recompute_all": [PLACE]}  # at its end; the next lesson has the answer


def add_files(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Load the scripts and styles on pages with interactive questions only."""
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
    """Return the data of the questions of all pages."""
    return {
        "peak": peak_data(),
        "draw": draw_data(),
        "place": place_data(),
        "needs": {"reads": reads_data(), "again": again_data()},
    }


def peak_data() -> dict[str, Any]:
    """Return the live values per step under store-all, and the text of each step."""
    schedule = tc.plan(tc.networks.chain(LAYERS), "store_all")
    trace = tc.replay(schedule)
    lines = str(schedule).splitlines()[: len(trace.steps)]
    steps = [" ".join(line.partition(" live ")[0].split()[1:]) for line in lines]
    return {"steps": steps, "nodes": written(trace.nodes)}


def draw_data() -> dict[str, Any]:
    """Return the live values per evaluation with one checkpoint around the whole chain."""
    trace = tc.replay(tc.plan(tc.networks.chain(WRAPPED), "retain", keep=[]))
    evaluated = [i for i, step in enumerate(trace.steps) if isinstance(step, tc.Compute)]
    return {
        "question": f"Or draw it, for {WRAPPED} layers: the memory while each operator is "
        "evaluated. The forward pass saves nothing; every value is recomputed once.",
        "steps": names_of(trace, evaluated),
        "nodes": written(tuple(trace.nodes[i] for i in evaluated)),
    }


def place_data() -> dict[str, Any]:
    """Return the result of every set of checkpoints; bit i-1 of its number says that fi is kept."""
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
    """Return the inputs of the adjoints of different operators, for lesson 2."""

    def net(w: tc.Var, x: tc.Var, u: tc.Var) -> tc.Var:
        return tc.sum(tc.exp(tc.sin(x @ w)) * u)

    square = tc.Spec((4, 4))
    graph = tc.differentiate(tc.build(net, square, square, square))
    forward = [node for node in graph.data if node.role != "cotangent" and node.name != "1.0"]
    letters = dict(zip("wxuzsep", (node.id for node in forward), strict=False))
    shown = {node: letter for letter, node in letters.items()}
    # An adjoint returns the cotangent of an input of its operator.
    back = {"p": "sum_1", "e": "multiply_1", "s": "exp_1", "z": "sin_1", "w": "matmul_1"}
    adjoints = {o.name: o for o in graph.operators[graph.forward_count :]}
    cotangents = {letter: adjoints[f"{name}_vjp"] for letter, name in back.items()}
    shown |= {o.outputs[0]: f"d{letter}" for letter, o in cotangents.items()}
    why = {
        "s": "exp is its own derivative: its adjoint reads its output, and s itself is not read.",
        "z": "The derivative of sin is cos of the input: its adjoint reads z, and s is not read.",
        "w": "It is x.T @ dz: a product's adjoint reads the other factor, never the product. So of "
        "x, z, s, e and p, the backward pass reads neither s nor p: they need not be saved.",
    }
    rounds = []
    for letter, reason in why.items():
        right = [shown[data] for data in cotangents[letter].inputs]
        target = f"d{letter}"
        rounds.append(
            {
                "question": f"which values does the adjoint read that returns {target}, the "
                f"gradient of {letter}?",
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
    """Return the values that sqrt-n recomputes for some adjoints of a chain, for lesson 5."""
    layers, segments = SEGMENTS
    trace = tc.replay(tc.plan(tc.networks.chain(layers), "sqrt_n", segments=segments))
    graph, steps = trace.graph, trace.steps
    why = {
        11: "The last segment is still resident: the backward pass begins where the forward ends.",
        7: "From the checkpoint f4 up to f7, which b7 reads.",
        6: "f6 was recomputed on the way to f7, and kept: a segment is recomputed once.",
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
                "question": f"f4 and f8 are kept, and b{layer + 1} has just been computed. Which "
                f"values have to be recomputed before {target}?",
                "target": target,
                "right": again,
                "held": [name for name in ("f4", "f8") if name in held],
                "edges": [pair for name in (*again, target) for pair in reads_of(graph, name)],
                "truth": f"Recomputed before {target}: {', '.join(again) or 'nothing'}.",
                "why": reason,
            }
        )
    columns = [[f"f{layer}", f"b{layer}"] for layer in range(1, layers + 1)]
    return {"columns": columns, "rounds": rounds}


def reads_of(graph: tc.Graph, name: str) -> list[list[str]]:
    """Return pairs of an input of an operator of a chain, and its name."""
    operator = next(operator for operator in graph.operators if operator.name == name)
    return [[graph.data[data].name, name] for data in operator.inputs]


def is_adjoint(trace: tc.Trace, step: int) -> bool:
    """Return whether a step evaluates an operator of the backward pass."""
    done = trace.steps[step]
    return isinstance(done, tc.Compute) and done.operator >= trace.graph.forward_count


def names_of(trace: tc.Trace, steps: Any) -> list[str]:
    """Return the name of the operator of each step; an empty one unless it is an evaluation."""
    done = [trace.steps[step] for step in steps]
    operators = trace.graph.operators
    return [operators[step.operator].name if isinstance(step, tc.Compute) else "" for step in done]


def written(counts: tuple[int, ...]) -> str:
    """Return small numbers as one digit each, of base 36."""
    return "".join(DIGITS[count] for count in counts)
