"""The table of techniques: peaks against closed forms, replay and execution; every row is there."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.tinyckpt.networks.small import small
from tinyckpt.base.tree import leaves
from tinyckpt.networks import Network, random_arrays
from tinyckpt.networks.registry import argument_specs
from tinyckpt.pipeline.stages import EXCHANGE
from tinyckpt.techniques import comparison
from tinyckpt.techniques.comparison import (
    PARTS,
    TECHNIQUES,
    Row,
    TechniqueComparison,
    compare_techniques,
    reason,
)

QUICK = 0.15  # seconds for each plan
FUNCTIONS = [name for name in TECHNIQUES if "offload" not in name][2:-2]  # that need one
WITHOUT_SPEED = tc.Link(10**30)


def quick(what: Any, *names: str, **options: Any) -> TechniqueComparison:
    """Compare techniques, all or store-all and those named, with little time for each plan."""
    chosen = {name: TECHNIQUES[name] for name in ("store-all", *names)} if names else TECHNIQUES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "TECHNIQUES", chosen)
        return compare_techniques(what, **{"time_limit": QUICK, **options})


def check(found: TechniqueComparison) -> None:
    """Hold every row to what replay says, and execution."""
    assert tuple(row.name for row in found.rows) == tuple(TECHNIQUES)
    whole = found.row("store-all").peak
    assert whole is not None
    for row in found.rows:
        assert bool(row.why) == (row.peak is None) == (row.times is None)
        if row.peak is None:
            assert (row.share, row.fits, row.gradients, row.schedules) == (None, None, None, ())
            continue
        assert row.share == row.peak / whole
        assert row.fits == (row.peak <= found.budget)
        if "recomputation" in row.name and "pipeline" not in row.name:
            assert row.fits
        check_peak(row)
        if row.error is not None:
            assert (row.error == 0) or row.gradients != "bitwise"
            assert row.error < 1e-9 or row.gradients not in ("bitwise", "rounded")


def check_peak(row: Row) -> None:
    traces = [tc.replay(schedule) for schedule in row.schedules]
    assert row.host_bytes == max(max(trace.host, default=0) for trace in traces)
    largest = max(trace.peak_bytes for trace in traces)
    if row.name.startswith("pipeline"):
        if row.devices > 1:  # of a micro-batch in each stage; tests of pipelines hold devices to it
            assert {op.kind for t in traces for op in t.graph.operators} >= {EXCHANGE}
            return
        (graph,) = (trace.graph for trace in traces)
        added = sum(graph.data[data].spec.nbytes for data in leaves(graph.gradients))
        assert row.peak == largest + added * (", 1 micro-batch," not in row.takes)
        return
    for trace in traces:
        arrays = random_arrays(argument_specs(trace.graph))
        assert tc.run(trace.schedule, *arrays).trace == trace
    if row.name.startswith("accumulation"):
        arguments = traces[0].graph.arguments
        held = [traces[0].graph.data[data].nbytes for data in leaves(arguments[0])]
        assert row.peak == largest + sum(held)
    elif row.host_bytes:
        assert row.peak is not None
        assert largest <= row.peak  # a copy to the host holds what it reads until it ends
    else:
        assert row.peak == largest


def test_chain_peaks_equal_closed_forms() -> None:
    # 18 nodes of 512 bytes; Revolve within 9; and what moves copies nothing at that speed.
    found = quick(tc.networks.chain(16), costs=tc.cost.evaluations, link=WITHOUT_SPEED)
    check(found)
    rows = {row.name: (row.peak, row.times) for row in found.rows if not row.why}
    assert found.budget == 9 * 512
    assert rows["store-all"] == (18 * 512, 1.0)
    assert rows["recomputation"] == (9 * 512, 42 / 33)
    assert rows["offload"][0] == 9 * 512
    assert rows["recomputation + offload"][1] == pytest.approx(1.0, abs=1e-9)
    # Four stages of four layers, one after another: no two of them at a time.
    assert rows["pipeline"][1] == pytest.approx(4.0, abs=1e-9)
    assert {row.why for row in found.rows if row.name in FUNCTIONS} == {
        "it needs the network's function, and only a graph is given"
    }


def test_accumulation_peak_is_micro_batch_plus_gradients() -> None:
    # At the peak three values of the batch and two numbers; and the gradients added up so far.
    def loss(w: Any, x: Any, y: Any) -> Any:
        return tc.mean((tc.tanh(x @ w) - y) ** 2)

    network = Network("one", loss, (tc.Spec((4, 4)), tc.Spec((32, 4)), tc.Spec((32, 4))))
    found = quick(network, budget="60 %", stages=2)
    check(found)
    row = found.row("accumulation")
    whole = tc.replay(tc.plan(network.graph()))
    assert whole.peak_bytes == found.row("store-all").peak == 3 * 32 * 4 * 8 + 2 * 8
    assert row.takes == "2 micro-batches"
    assert row.peak == 3 * 16 * 4 * 8 + 2 * 8 + 4 * 4 * 8
    assert row.gradients == "rounded"


@pytest.mark.nightly
def test_combination_never_costs_more_than_its_parts() -> None:
    network = tc.networks.mlp(8, 16, 64)
    for budget in ("50 %", "70 %", "90 %"):
        found = quick(network, budget=budget, time_limit=1, measure=False)
        for name, parts in PARTS.items():
            times = [found.row(part).times for part in parts if found.row(part).fits]
            for time in filter(None, times):
                assert found.row(name).times <= time  # type: ignore[operator]


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("name", ["vit", "gpt2", "llama", "lenet5", "vgg16_bn", "bert"])
def test_network_peaks_equal_replay_and_execution(name: str) -> None:
    network = small(name)
    found = quick(network, budget="70 %", stages=2, chunks=3)
    check(found)
    assert found.note == ""
    rows = {row.name: row for row in found.rows}
    errors = {key: row.error for key, row in rows.items() if row.error is not None}
    assert {key for key, row in rows.items() if not row.why} == set(errors)
    assert (rows["LowMemoryBP"].why == "") == (name not in ("lenet5", "vgg16_bn"))
    assert rows["accumulation"].gradients == (
        {"vgg16_bn": "approximate", "vit": "unproven"}.get(name, "rounded")
    )
    if name == "vgg16_bn":
        assert rows["accumulation"].sense == "batch norm sees a part alone"
        assert errors["accumulation"] > 1e-3
    else:
        assert errors["accumulation"] < 1e-12
        assert errors["pipeline"] < 1e-12
        assert errors["chunking"] < 1e-12


@pytest.mark.long
def test_compression_error_grows_with_fewer_bits() -> None:
    found = quick(tc.networks.mlp(3, 64, batch=256), "8 bits", "4 bits", "2 bits")
    errors = [found.row(f"{bits} bits").error for bits in (8, 4, 2)]
    assert None not in errors
    assert 0 < errors[0] < errors[1] < errors[2] < 1  # type: ignore[operator]
    peaks = [found.row(f"{bits} bits").peak for bits in (8, 4, 2)]
    for bits, peak in zip((8, 4, 2), peaks, strict=True):
        coded = tc.with_compression(tc.networks.mlp(3, 64, batch=256), bits=bits)
        assert peak == tc.replay(tc.plan(coded.graph())).peak_bytes


@pytest.mark.long
@settings(max_examples=examples(6))
@given(
    st.sampled_from(["mlp", "residual", "branching", "transformer"]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 4, 12]),
    st.sampled_from(["10 %", "60 %", 0.9]),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_every_technique_has_a_row(
    kind: str, layers: int, batch: int, budget: Any, stages: int, chunks: int
) -> None:
    networks: dict[str, Network] = {
        "mlp": tc.networks.mlp(layers, 8, batch, activation="gelu"),
        "residual": tc.networks.residual_mlp(layers, 8, batch),
        "branching": tc.networks.branching(layers, 8, batch),
        "transformer": tc.networks.transformer(layers, 8, 2, 3, batch, 17, dtype="float64"),
    }
    found = quick(networks[kind], budget=budget, stages=stages, chunks=chunks, time_limit=0.1)
    check(found)
    if batch == 1:
        assert found.row("accumulation").why.endswith("no common batch axis that could be split")
        assert found.row("pipeline").takes.startswith(f"{stages} device")


def test_logits_needed_whole_are_not_chunked() -> None:
    def summed(w: Any, x: Any, y: Any) -> Any:
        losses, sums = tc.apply_all(tc.PRIMITIVES["cross_entropy"], x @ w, y)
        return tc.mean(losses) + tc.sum(sums)

    x, y = tc.Spec((6, 4)), tc.Spec((6,), "int64")
    losses: dict[str, Any] = {
        "the logits are read elsewhere, too": lambda w, x, y: (
            tc.cross_entropy(logits := x @ w, y) + tc.sum(logits)
        ),
        "the logits must be computed once": lambda w, x, y: tc.cross_entropy(tc.once(x @ w), y),
        "the logits are an argument": lambda w, x, y: tc.cross_entropy(x, y) + tc.sum(w),
        "the logits come from multiply": lambda w, x, y: tc.cross_entropy((x @ w) * 2.0, y),
        "the logits are a sum of more": lambda w, x, y: tc.cross_entropy(x @ w + x @ w, y),
        "the log-sum-exp of the logits is read": summed,
        "the loss is no cross-entropy": lambda w, x, y: tc.mean(tc.tanh(x @ w)),
    }
    for why, loss in losses.items():
        found = quick(Network("n", loss, (tc.Spec((4, 7)), x, y)), "chunking")
        assert found.row("chunking").why.startswith(why)
    network = tc.networks.mlp(2, 8, 12)
    row = quick(network, "chunking", chunks=5).row("chunking")
    kinds = [operator.kind for operator in row.schedules[0].graph.operators]
    assert kinds.count("cross_entropy") == 5
    assert row.takes.startswith("logits in 5 pieces")


def test_loss_other_than_sample_mean_is_not_called_exact() -> None:
    specs = (tc.Spec((4, 4)), tc.Spec((6, 4)))
    losses: dict[str, Any] = {
        "rounded": lambda w, x: tc.mean(tc.tanh(x @ w)),
        "sum": lambda w, x: tc.sum(tc.tanh(x @ w)),
        "share": lambda w, x: tc.sum(tc.tanh(x @ w)) / 7.0,
        "softmax": lambda w, x: tc.mean(tc.softmax(x @ w, axis=0) ** 2),
        "dropout": lambda w, x: tc.mean(tc.dropout(x @ w, 0.5, seed=1)),
        "size": lambda w, x: tc.mean(tc.tanh(x @ w) * x.shape[0]),
        "branch": lambda w, x: tc.mean((tc.tanh if x.shape[0] > 3 else tc.sin)(x @ w)),
        "beside": lambda w, x: tc.mean(tc.tanh(x @ w)) + tc.sum(w * w),
    }
    for name, loss in losses.items():
        row = quick(Network(name, loss, specs), "accumulation").row("accumulation")
        expected = {"rounded": "rounded", "dropout": "approximate"}
        assert row.gradients == expected.get(name, "unproven")
        assert row.error is not None
        assert (row.error < 1e-12) == (name in ("rounded", "beside"))


def test_offload_time_equals_simulated_link() -> None:
    graph = tc.networks.chain(8)
    link = tc.Link(Fraction(256), latency=1, engines=1)
    names = "recomputation", "offload", "recomputation + offload"
    found = quick(graph, *names, costs=tc.cost.evaluations, link=link)
    row = found.row("offload")
    (schedule,) = row.schedules
    line = tc.timed(schedule, link, tc.cost.evaluations(graph), budget=found.budget)
    assert (row.peak, row.times) == (line.peak_bytes, float(line.makespan) / 17)
    assert found.row("recomputation + offload").times <= min(  # type: ignore[operator]
        row.times or 0, found.row("recomputation").times or 0
    )
    without = quick(graph, "offload", "pipeline", costs=tc.cost.evaluations)
    assert (
        without.row("offload").why
        == "no link is known in evaluations: give its bandwidth, in bytes for each"
    )
    assert without.row("pipeline").times == pytest.approx(4.0)


def test_offload_refuses_too_many_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "MOST_MOVABLE", 15)
    names = "offload", "recomputation + offload"
    found = quick(tc.networks.chain(16), "recomputation", *names, measure=False)
    for name in names:
        assert found.row(name).why == "16 values could be offloaded; copies of at most 15 are timed"
    assert found.row("recomputation").fits
    assert quick(tc.networks.chain(15), "offload", measure=False).row("offload").fits


def test_infinite_bandwidth_is_null_in_json() -> None:
    found = quick(tc.networks.chain(8), "offload", link=tc.Link(float("inf")), measure=False)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["link"] == {"bandwidth": None, "latency": 0.0, "engines": 2}
    assert document["rows"][0]["fits"] is False
    assert document["budget"] == 5 * 512
    tiny = Row("one", peak=1, share=0.5, fits=True, times=float("nan"), gradients="bitwise")
    weighing = TechniqueComparison("few", 1, "FLOPs", None, (tiny,))
    assert json.loads(json.dumps(weighing.document(), allow_nan=False))["rows"][0]["times"] is None


def test_peak_slightly_over_budget_is_printed_to_the_byte() -> None:
    rows = [
        Row(str(peak), peak=peak, share=1.0, fits=peak <= 2**20, times=1.0, gradients="bitwise")
        for peak in (2**20, 2**20 + 8, 2**21)
    ]
    lines = str(TechniqueComparison("net", 2**20, "FLOPs", None, tuple(rows))).splitlines()
    assert lines[0] == "net within 1.0 MiB, 1,048,576 B; time in FLOPs"
    assert [" ".join(line.split()[1:4]) for line in lines[2:]] == [
        "1.0 MiB 100.0", "1,048,584 B 100.0", "2.0 MiB 100.0"
    ]  # fmt: skip
    assert str(TechniqueComparison("net", 2**20, "FLOPs", None, tuple(rows[::2]))).startswith(
        "net within 1.0 MiB; time"
    )
    why = reason(tc.BudgetError("", 2**20 + 8), 2**20)
    assert why == "nothing found within the budget; the least peak is 1,048,584 B"


def test_comparison_of_a_graph_with_own_costs() -> None:
    graph = tc.networks.chain(4)
    found = quick(graph, measure=False)
    assert found.unit == "FLOPs"
    assert {row.measured for row in found.rows} == {None}
    assert "measured" not in str(found)
    assert "x measured" in str(quick(graph))
    document = found.document()
    assert [row["name"] for row in document["rows"]] == list(TECHNIQUES)
    assert document["rows"][0]["peak"] == 6 * 512


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "much"}, "budget 'much'; expected"),
        ({"budget": "9 nodes"}, "techniques are compared in bytes, not in nodes"),
        ({"stages": 0}, "stages=0; it must be an integer of 1 or more"),
        ({"chunks": 2.5}, "chunks=2.5; it must be an integer of 1 or more"),
        ({"time_limit": -1}, "time_limit = -1; it must be a number of seconds"),
        ({"backend": "abacus"}, "unknown backend 'abacus'"),
        ({"link": 3}, "link=3; expected a Link"),
        ({"costs": 7}, "costs=7; expected a function of a graph"),
        ({"costs": repr}, "expected a Costs, as tc.cost.flops"),
    ],
)
def test_illegal_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.TinyckptError, match=message):
        compare_techniques(tc.networks.mlp(2, 4), **options)


def test_input_without_gradients_is_refused() -> None:
    with pytest.raises(tc.GraphError, match="expected a Network or a Graph, got a int"):
        compare_techniques(3)  # type: ignore[arg-type]
    with pytest.raises(tc.GraphError, match="has no backward pass"):
        compare_techniques(tc.build(lambda x: tc.tanh(x), tc.Spec(3)))
    bare = Network("bare", lambda params, x: tc.sum(tc.tanh(x)), ([], tc.Spec(3)))
    with pytest.raises(tc.GraphError, match="bare has no parameters"):
        compare_techniques(bare)


def test_dropout_makes_accumulated_gradients_approximate() -> None:
    def loss(w: Any, x: Any) -> Any:
        return tc.mean(tc.dropout(tc.tanh(x @ w), 0.5, seed=3) ** 2)

    network = Network("noise", loss, (tc.Spec((4, 4)), tc.Spec((8, 4))))
    found = quick(network, "accumulation", budget="90 %")
    assert found.row("accumulation").gradients == "approximate"
    assert found.row("accumulation").sense == "each part draws by itself"


def test_more_stages_than_operators_are_refused_before_building() -> None:
    found = quick(tc.networks.mlp(2, 8), "pipeline", stages=10**9, measure=False)
    assert "it can be cut into 1 to" in found.row("pipeline").why
