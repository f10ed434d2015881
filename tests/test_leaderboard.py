"""The leaderboard of planners: checker against ``replay``, importers, cells, page, differences."""

import hashlib
import json
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from benchmarks.leaderboard import __main__ as command
from benchmarks.leaderboard import cells, difference, dtr_log, instances, planners, report
from benchmarks.leaderboard.checker import IllegalError, check
from benchmarks.leaderboard.checkmate import TooLargeError, checkmate
from benchmarks.leaderboard.instances import Instance, InstanceError
from tests.conftest import ROOT, examples, require

# Value 0 is large and read late.
LATE = Instance(
    costs=(3, 1, 1, 1, 2),
    sizes=(50, 10, 10, 10, 1),
    reads=((), (), (1,), (2,), (0, 3)),
    backward=(False,) * 5,
    results=(4,),
)


@st.composite
def drawn_instances(draw: st.DrawFn) -> Instance:
    """Draw an instance: fan-out, operators without inputs, several results, values never read."""
    count = draw(st.integers(2, 9))
    reads = [
        tuple(sorted(draw(st.sets(st.integers(0, own - 1), max_size=3)))) if own else ()
        for own in range(count)
    ]
    numbers = st.lists(st.integers(0, 9), min_size=count, max_size=count)
    results = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    turn = draw(st.integers(0, count))
    backward = tuple(own >= turn for own in range(count))
    costs, sizes = tuple(draw(numbers)), tuple(draw(numbers))
    return Instance(costs, sizes, tuple(reads), backward, tuple(sorted(results)))


def some_schedule(instance: Instance, random: Random) -> list[tc.Compute | tc.Free]:
    """Return a legal schedule with recomputations: values are freed at random, if not results."""
    steps: list[tc.Compute | tc.Free] = []
    live: set[int] = set()

    def make(own: int) -> None:
        for value in instance.reads[own]:
            if value not in live:
                make(value)
        steps.append(tc.Compute(own))
        live.add(own)

    for own in range(len(instance.costs)):
        if own not in live:
            make(own)
        for value in sorted(live):
            if random.random() < 0.3 and value not in instance.results:
                steps.append(tc.Free(value))
                live.remove(value)
    return steps


def mutated(steps: list[Any], count: int, random: Random) -> list[Any]:
    """Return a schedule with one step dropped, repeated, swapped with another or altered."""
    steps, place, other = list(steps), random.randrange(len(steps)), random.randrange(len(steps))
    kind = random.choice(("drop", "repeat", "swap", "alter", "turn"))
    step = steps[place]
    if kind == "drop":
        del steps[place]
    elif kind == "repeat":
        steps.insert(other, step)
    elif kind == "swap":
        steps[place], steps[other] = steps[other], step
    elif kind == "alter":
        steps[place] = type(step)(random.randrange(count + 1))
    else:
        steps[place] = tc.Free(step.operator) if isinstance(step, tc.Compute) else tc.Compute(
            step.data
        )  # fmt: skip
    return steps


def text(steps: list[Any]) -> str:
    """Return steps as the checker reads them."""
    lines = [
        f"compute {step.operator}" if isinstance(step, tc.Compute) else f"free {step.data}"
        for step in steps
    ]
    return "\n".join(lines) + "\n"


@settings(max_examples=examples(250))
@given(drawn_instances(), st.integers(0, 2**32))
def test_checker_and_replay_agree_on_mutated_schedules(instance: Instance, seed: int) -> None:
    random, graph = Random(seed), instances.graph_of(instance)
    legal = some_schedule(instance, random)
    described = instances.text_of(instance)
    for steps in (legal, *(mutated(legal, len(instance.costs), random) for _ in range(4))):
        try:
            trace = tc.replay(tc.Schedule(graph, tuple(steps), "mutated"))
        except tc.ScheduleError:
            with pytest.raises(IllegalError, match=r"^(line \d+|the end): "):
                check(described, text(steps))
            continue
        evaluated = [step.operator for step in steps if isinstance(step, tc.Compute)]
        firsts = list(dict.fromkeys(evaluated))
        order = "given" if firsts == sorted(firsts) else "free"
        cost = sum(instance.costs[operator] for operator in evaluated)
        expected = f"cost {cost} peak {trace.peak_bytes} order {order}"
        assert check(described, text(steps)) == expected


@given(drawn_instances())
@settings(max_examples=examples(100))
def test_text_of_instance_is_read_back_with_its_peak(instance: Instance) -> None:
    assert instances.parsed(instances.text_of(instance)) == instance
    graph = instances.graph_of(instance)
    every = tc.from_order(graph, range(len(instance.costs)))
    assert instance.peak == tc.replay(every).peak_bytes >= instance.least
    assert tc.cost.given(graph).operators == instance.costs


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("compute 4\n", "line 1: 4 reads 0, which is not live"),
        ("compute 0\ncompute 0\n", "line 2: 0 is computed and still live"),
        ("# nothing\n\nfree 0 # yet\n", "line 3: 0 is freed and not live"),
        ("compute 5\n", "line 1: there is no operator 5"),
        ("compute -1\n", "line 1: not a step: compute -1"),
        ("offload 1\n", "line 1: not a step: offload 1"),
        ("compute 0\n", "the end: the result 4 is not live"),
    ],
)
def test_checker_names_first_illegal_line(schedule: str, said: str) -> None:
    with pytest.raises(IllegalError) as error:
        check(instances.text_of(LATE), schedule)
    assert str(error.value) == said


def test_checker_imports_nothing_but_standard_library() -> None:
    source = Path(cells.CHECKER).read_text(encoding="utf-8")
    imported = re.findall(r"^(?:import|from) (\S+)", source, re.MULTILINE)
    assert imported == ["sys", "collections.abc"]


# Files of the published form.
LAYERED = {
    "directed": True, "multigraph": False,
    "graph": {"name": "random_layered", "order": [0, 2, 3, 1]},
    "nodes": [{"out_cost": 7, "param_cost": 0, "duration": 0, "name": 0},
              {"out_cost": 2, "param_cost": 0, "duration": 5, "name": 1},
              {"out_cost": 3, "param_cost": 0, "duration": 4, "name": 2},
              {"out_cost": 1, "param_cost": 0, "duration": 6, "name": 3}],
    "links": [{"0": 0, "1": 2}, {"0": 2, "1": 3}, {"0": 0, "1": 3}, {"0": 3, "1": 1}],
}  # fmt: skip
TRAINING = {
    "directed": True, "multigraph": False, "graph": {"name": "net_train"},
    "nodes": [{"name": "conv", "backward": False, "cost_cpu": 9, "cost_ram": 64, "id": 0},
              {"name": "Loss", "backward": True, "cost_cpu": 2, "cost_ram": 8, "id": 1},
              {"name": "conv_backward", "backward": True, "cost_cpu": 4, "cost_ram": 64, "id": 2}],
    "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}, {"source": 0, "target": 2}],
}  # fmt: skip


def test_layered_graph_is_read_in_its_own_order() -> None:
    assert instances.layered(LAYERED) == Instance(
        costs=(0, 4, 6, 5), sizes=(7, 3, 1, 2), reads=((), (0,), (0, 1), (2,)),
        backward=(False,) * 4, results=(3,),
    )  # fmt: skip


def test_training_graph_has_backward_pass() -> None:
    found = instances.training_graph(TRAINING)
    assert found == Instance(
        costs=(9, 2, 4), sizes=(64, 8, 64), reads=((), (0,), (0, 1)),
        backward=(False, True, True), results=(2,),
    )  # fmt: skip
    assert instances.graph_of(found).forward_count == 1


def test_order_that_is_none_is_refused() -> None:
    late = {**LAYERED, "graph": {"order": [2, 0, 3, 1]}}
    with pytest.raises(InstanceError, match="2 is evaluated before 0, which it reads"):
        instances.layered(late)
    with pytest.raises(InstanceError, match="the order does not name every node once"):
        instances.layered({**LAYERED, "graph": {"order": [0, 2, 3]}})


# A log of the published form: a view of a convolution's result is written over in place; batch norm
# has two outputs, one of which has a name at the end, as the last result has; "unused" has none.
LOG = """
ANNOTATE ANNOTATION=START
CONSTANT NAME=w
MEMORY NAME=w MEMORY=6
CALL ARGS=w NAME=view RESULT=v TIME=1
MEMORY NAME=v MEMORY=6
ALIAS NAME=v ALIAS=0
CALL ARGS=v NAME=convolution RESULT=a TIME=90
MEMORY NAME=a MEMORY=40
ALIAS NAME=a ALIAS=-1
CALL ARGS=a NAME=view RESULT=b TIME=2
MEMORY NAME=b MEMORY=40
ALIAS NAME=b ALIAS=0
MUTATE ARGS=b,v MUTATE=0 NAME=relu_ TIME=7
CALL ARGS=b NAME=max_pool2d_backward RESULT=p,q TIME=10
MEMORY NAME=p MEMORY=20
ALIAS NAME=p ALIAS=-1
MEMORY NAME=q MEMORY=5
ALIAS NAME=q ALIAS=-1
CALL ARGS=a NAME=unused RESULT=u TIME=3
MEMORY NAME=u MEMORY=8
ALIAS NAME=u ALIAS=-1
RELEASE NAME=u
COPY DST=c SRC=p
RELEASE NAME=p
ANNOTATE ANNOTATION=BACKWARD
CALL ARGS=c,q,a NAME=batch_norm_backward RESULT=g,h TIME=11
MEMORY NAME=g MEMORY=40
ALIAS NAME=g ALIAS=-1
MEMORY NAME=h MEMORY=2
ALIAS NAME=h ALIAS=-1
COPY_FROM DST=w SRC=h
RELEASE NAME=h
CALL ARGS=g,b NAME=convolution_backward RESULT=i TIME=80
MEMORY NAME=i MEMORY=6
ALIAS NAME=i ALIAS=-1
RELEASE NAME=g
RELEASE NAME=a
RELEASE NAME=b
RELEASE NAME=c
RELEASE NAME=q
"""


def log_of(text: str) -> str:
    """Return a log as it is published, a JSON document a line."""
    lines = []
    for words in map(str.split, text.strip().splitlines()):
        line: dict[str, Any] = dict(word.split("=") for word in words[1:])
        for name in {"ARGS", "RESULT", "MUTATE"} & {*line}:
            parts = line[name].split(",")
            line[name] = [int(part) for part in parts] if name == "MUTATE" else parts
        lines.append(json.dumps({"INSTRUCTION": words[0], **line}))
    return "\n".join(lines)


def test_log_of_dtr_is_read_without_sources_and_views() -> None:
    assert dtr_log.instance_of_log(log_of(LOG)) == Instance(
        costs=(90, 7, 10, 5, 5, 80),
        sizes=(40, 40, 25, 2, 40, 6),
        reads=((), (0,), (1,), (0, 2), (0, 2), (1, 4)),
        backward=(False, False, False, True, True, True),
        results=(3, 5),
    )
    unsaid = LOG.replace("ANNOTATE ANNOTATION=BACKWARD\n", "")
    found = dtr_log.instance_of_log(log_of(unsaid))
    assert found.backward == (False, False, True, True, True, True)  # from the first called so
    with pytest.raises(InstanceError, match="SPLIT is no instruction of a log"):
        dtr_log.instance_of_log(log_of("SPLIT NAME=a"))


def test_log_is_found_in_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logs/net-default.log", log_of(LOG))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    published = replace(instances.operator_log("net"), sha256=sha256)
    assert instances.fetched(published, tmp_path) == dtr_log.instance_of_log(log_of(LOG))


def test_published_file_is_refused_by_checksum(tmp_path: Path) -> None:
    published = instances.PUBLISHED["vgg16"]
    with pytest.raises(InstanceError, match=r"is not there; fetch it from https://raw\.github"):
        instances.fetched(published, tmp_path)
    (tmp_path / published.file).write_text(json.dumps(TRAINING), encoding="utf-8")
    with pytest.raises(InstanceError, match=f"the published {published.sha256}"):
        instances.fetched(published, tmp_path)


def test_merged_graph_has_one_value_per_operator_and_no_views() -> None:
    def loss(w: Any, x: Any) -> Any:
        left, right = tc.split(x @ w, 2, axis=1)
        return tc.sum(left.T @ right)

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 4)), tc.Spec((2, 4))))
    found = instances.merged(graph)
    assert len(found.costs) < len(graph.operators)
    assert instances.parsed(instances.text_of(found)) == found
    assert tc.replay(tc.plan(instances.graph_of(found))).peak_bytes == found.peak


def two_gradients() -> tc.Graph:
    """Return a graph whose one operator of the backward pass makes a gradient and a cotangent."""
    spec = [tc.Spec((size,), "uint8") for size in (4, 5, 1, 6, 7)]
    data = (
        tc.DataNode(0, "w", spec[0], "parameter", 4, None),
        tc.DataNode(1, "h", spec[1], "activation", 5, 0),
        tc.DataNode(2, "l", spec[2], "activation", 1, 1),
        tc.DataNode(3, "dw", spec[3], "gradient", 6, 2),
        tc.DataNode(4, "dh", spec[4], "cotangent", 7, 2),
        tc.DataNode(5, "unread", spec[4], "cotangent", 7, 3),
    )
    operators = (
        tc.Operator(0, "f", "layer", (0,), (1,), flops=3),
        tc.Operator(1, "loss", "layer", (1,), (2,), flops=1),
        tc.Operator(2, "b", "layer", (1, 2), (3, 4), "backward", flops=9),
        tc.Operator(3, "c", "layer", (4,), (5,), "backward", flops=2),
    )
    return tc.Graph("two", data, operators, (), [2], [3])


def test_gradient_beside_cotangent_is_an_operator_of_its_own() -> None:
    together = instances.merged(two_gradients())
    assert (together.sizes, together.results) == ((5, 1, 13, 7), (1, 2))
    apart = instances.merged(two_gradients(), lambda operator: 2 * operator.flops, apart=True)
    assert apart == Instance(
        costs=(6, 2, 9, 9, 4), sizes=(5, 1, 6, 7, 7), reads=((), (0,), (0, 1), (0, 1), (3,)),
        backward=(False, False, True, True, True), results=(1, 2),
    )  # fmt: skip
    assert instances.needed(apart) == Instance(
        costs=(6, 2, 9), sizes=(5, 1, 6), reads=((), (0,), (0, 1)), backward=(False, False, True),
        results=(1, 2),
    )  # fmt: skip


# Operators, results (the loss, and a gradient for each parameter), peak and least in bytes, and ns.
JOINT = {
    "joint-resnet50": (514, 1 + 161, 8_364_329_892, 822_087_680, 25_963_412),
    "joint-vit": (635, 1 + 152, 8_117_146_532, 464_781_312, 52_693_546),
    "joint-unet": (227, 1 + 82, 3_898_615_048, 671_088_640, 15_094_530),
    "joint-gpt2": (649, 1 + 148, 13_452_877_828, 4_940_464_128, 63_253_803),
    "joint-llama": (1795, 1 + 146, 13_494_665_220, 6_304_038_912, 166_816_300),
}


def test_each_joint_graph_has_numbers() -> None:
    assert list(JOINT) == [*instances.JOINT]
    files = {path.name for path in instances.DATA.iterdir()}
    assert files == {f"{name}.txt.gz" for name in JOINT}
    page = report.PAGE.read_text(encoding="utf-8")
    for name, (operators, _, peak, _, _) in JOINT.items():
        row = rf"^\| {name} \| .* \| {operators} \| {peak / 2**30:.1f} GiB \|$"
        assert re.search(row, page, re.MULTILINE), name


@pytest.mark.parametrize("name", JOINT)
def test_joint_graph_is_read_back_with_its_peak(name: str) -> None:
    found = instances.instance_of(name, None)
    numbers = len(found.costs), len(found.results), found.peak, found.least, sum(found.costs)
    assert numbers == JOINT[name]
    assert instances.parsed(instances.text_of(found)) == found == instances.needed(found)
    every = "".join(f"compute {own}\n" for own in range(len(found.costs)))
    cost, size = sum(found.costs), sum(found.sizes)
    assert check(instances.text_of(found), every) == f"cost {cost} peak {size} order given"
    graph = instances.graph_of(found)
    assert tc.replay(tc.plan(graph)).peak_bytes == found.peak
    assert (instances.DATA / f"{name}.txt.gz").stat().st_size < 60_000


@pytest.mark.long
def test_traced_step_has_loss_and_gradients_as_results_and_no_buffers() -> None:
    require("torch")
    import torch

    from benchmarks.leaderboard import joint
    from tinyckpt.interop import torch as tct

    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3))
    images = torch.zeros(4, 2, 5, 5)
    traced = tct.trace(
        model.train(), images, workspace=False, cost="roofline", loss=lambda y: y.sum()
    )
    found = joint.instance_of(traced.graph)
    # Each of the gradients has 4 bytes an element: of a weight 3x2 and of biases and scales.
    sizes = sorted(found.sizes[result] for result in found.results)
    assert sizes == [4, 12, 12, 12, 24]
    assert instances.needed(found) == found
    assert max(found.sizes) < 2 * 4 * 3 * 25 * 4  # no output has the memory of another with it


def test_chain_instance_has_published_optimum() -> None:
    found = planners.PLANNERS["tinyckpt"](instances.chain(16), 9 * 512, 10.0)
    checked = check(
        instances.text_of(instances.chain(16)), planners.text_of(found.schedule)  # type: ignore[arg-type]
    )  # fmt: skip
    assert (found.bound, checked) == (42, "cost 42 peak 4608 order given")


@pytest.mark.long
@pytest.mark.parametrize("name", ["tinyckpt-given", "moccasin-1", "checkmate", "dtr"])
def test_planners_in_given_order_find_its_optimum(name: str) -> None:
    require({"moccasin-1": "ortools", "checkmate": "scipy"}.get(name, "numpy"))
    # The large value is dropped and recomputed: one evaluation, of cost 3, more.
    found = planners.PLANNERS[name](LATE, 61, 20.0)
    assert found.schedule is not None
    checked = check(instances.text_of(LATE), planners.text_of(found.schedule))
    assert checked == "cost 11 peak 61 order given"


def test_knapsack_takes_the_cheapest_of_its_settings_within_the_budget() -> None:
    chain = instances.chain(16)
    graph = instances.graph_of(chain)
    made = [tc.plan(graph, "knapsack", activation_memory_budget=part / 8) for part in range(8)]
    traces = [tc.replay(schedule) for schedule in made]
    peaks = [trace.peak_bytes for trace in traces]
    assert len({trace.evaluations for trace in traces}) > 4
    for budget in (min(peaks) - 1, max(peaks)):
        within = [trace.evaluations for trace in traces if trace.peak_bytes <= budget]
        found = planners.knapsack(chain, budget, 20.0)
        assert found.said == f"{len(within)} of 8 settings are within the budget"
        assert (found.schedule is None) == (not within)
        if found.schedule is not None:
            checked = check(instances.text_of(chain), planners.text_of(found.schedule))
            assert checked.startswith(f"cost {min(within)} peak ")


def test_planner_in_free_order_evaluates_late_instead() -> None:
    found = planners.PLANNERS["tinyckpt"](LATE, 61, 20.0)
    assert found.schedule is not None
    checked = check(instances.text_of(LATE), planners.text_of(found.schedule))
    assert checked == "cost 8 peak 61 order free"
    assert found.bound == 8


def test_large_model_is_refused_before_it_is_built() -> None:
    count = 1_000
    reads = tuple((own - 1,) if own else () for own in range(count))
    long = Instance((1,) * count, (1,) * count, reads, (False,) * count, (count - 1,))
    with pytest.raises(TooLargeError, match="a model of 2,501,500 variables; at most 25,000"):
        checkmate(long, 3, 60.0)


# Cells --------------------------------------------------------------------------------------------


STORE_ALL = "compute 0\ncompute 1\ncompute 2\nfree 1\ncompute 3\nfree 2\ncompute 4\n"
WRITE = "import sys; open(sys.argv[3], 'w', encoding='utf-8').write({!r})"


def cell(folder: Path, script: str, limit: float = 20.0, budget: int = 81) -> cells.Cell:
    """Return a cell of somebody's planner; the budget is all that storing everything takes."""
    path = folder / "planner.py"
    path.write_text(script, encoding="utf-8")
    mine = f"{sys.executable} {path} {{graph}} {{budget}} {{schedule}}"
    return cells.Cell("late", 100, "mine", mine, instances.text_of(LATE), budget, limit, False)


@pytest.mark.parametrize(
    ("command", "said"),
    [("{folder} {{graph}}", "PermissionError"), ("sh -c 'kill -9 $PPID; sleep 9'", "status -9")],
)
def test_program_that_cannot_be_measured_is_an_error_of_the_command(
    command: str, said: str, tmp_path: Path, folder: Path
) -> None:
    mine = replace(cell(tmp_path, ""), command=command.format(folder=tmp_path))
    with pytest.raises(cells.CellError, match=rf"late\.100\.mine: .*{said}"):
        cells.run(mine, folder)
    assert not [*folder.iterdir()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the cells, which need an operating system that measures processes."""
    if sys.platform == "win32":  # elsewhere a missing os.wait4 is an error, not a skip
        pytest.skip("Windows has no os.wait4")
    (tmp_path / "cells").mkdir()
    return tmp_path / "cells"


def test_cell_is_measured_checked_and_kept(tmp_path: Path, folder: Path) -> None:
    mine = cell(tmp_path, WRITE.format(STORE_ALL))
    ballast = bytearray(b"x") * (200 << 20)  # of this process: no part of the planner's peak

    assert cells.outcome_in(folder, mine) is None
    outcome = cells.run(mine, folder)
    assert (outcome.status, outcome.cost, outcome.peak, outcome.order) == ("legal", 8, 70, "given")
    assert 1 < outcome.memory < len(ballast) / 2**20
    assert 0 < outcome.seconds < 20
    written = {path.name for path in folder.iterdir()}
    assert written == {"late.100.mine.json", "late.100.mine.schedule"}
    assert (folder / "late.100.mine.schedule").read_text(encoding="utf-8") == STORE_ALL
    assert cells.outcome_in(folder, mine) == outcome


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("print('too little room')", "nothing", "too little room"),
        ("raise SystemExit(3)", "failed", "exit status 3:"),
        ("raise ValueError('no')", "failed", "exit status 1: ValueError: no"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "exit status -9:"),
        (WRITE.format("compute 4\n"), "illegal", "illegal: line 1: 4 reads 0, which is not live"),
    ],
)
def test_planner_that_fails_is_an_outcome(
    script: str, status: str, said: str, tmp_path: Path, folder: Path
) -> None:
    outcome = cells.run(cell(tmp_path, script), folder)
    assert (outcome.status, outcome.cost, outcome.said) == (status, None, said)


def test_schedule_over_budget_is_an_outcome(tmp_path: Path, folder: Path) -> None:
    outcome = cells.run(cell(tmp_path, WRITE.format(STORE_ALL), budget=69), folder)
    assert (outcome.status, outcome.peak) == ("over", 70)


@pytest.mark.long
def test_overrunning_planner_is_killed_and_its_schedule_counts(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "GRACE", 0.5)
    wait = "\nimport time; time.sleep(99)"
    outcome = cells.run(cell(tmp_path, wait, limit=0.5), folder)
    assert (outcome.status, outcome.said) == ("killed", "killed 0.5 s after the deadline")
    assert 1 <= outcome.seconds < 20
    outcome = cells.run(cell(tmp_path, WRITE.format(STORE_ALL) + wait, limit=3.5), folder)
    assert (outcome.status, outcome.cost) == ("legal", 8)


def test_damaged_or_other_cell_is_refused(tmp_path: Path, folder: Path) -> None:
    mine = cell(tmp_path, "")
    cells.run(mine, folder)
    other = replace(mine, limit=5.0)
    with pytest.raises(cells.CellError, match=r"limit is 20.0, and would be 5.0 now; delete"):
        cells.outcome_in(folder, other)
    path = folder / "late.100.mine.json"
    whole = path.read_text(encoding="utf-8")
    for content in (whole[:40], "[]", "{}", whole.replace('"cost"', '"price"')):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(cells.CellError, match=r"late\.100\.mine\.json: .*; delete the file"):
            cells.outcome_in(folder, mine)


def test_command_resumes_where_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(instances.OWN, "tiny", lambda: LATE)
    given = ["--to", str(folder), "--instances", "tiny", "--shares", "100", "90", "1",
             "--seconds", "20", "--planners", "dtr", "--cells", "1"]  # fmt: skip
    for share in (100, 90):
        command.main(given)
        assert capsys.readouterr().out.startswith(f"tiny.{share}.dtr legal ")
    command.main(given)  # 1 % is less than one operator's working set
    assert capsys.readouterr().out == ""
    (folder / "tiny.90.dtr.json").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"tiny\.90\.dtr\.json: "):
        command.main(given)


# The page -----------------------------------------------------------------------------------------


def test_own_planner_of_page_runs(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert code.count("\n") <= 12
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.setitem(instances.OWN, "tiny", lambda: LATE)
    mine = f"mine={sys.executable} {tmp_path / 'mine.py'} {{graph}} {{budget}} {{schedule}}"
    command.main(["--to", str(folder), "--instances", "tiny", "--shares", "100",
                  "--planners", "--command", mine])  # fmt: skip
    outcome = cells.read_outcome(folder / "tiny.100.mine.json")
    assert (outcome.status, outcome.cost, outcome.peak) == ("legal", 8, LATE.peak)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--planners", "nope"], "invalid choice: 'nope'"),
        (["--seconds", "-1"], "invalid positive value: '-1'"),
        (["--shares", "0"], "0: a budget is 1 to 1000 per cent"),
        (["--command", "mine"], "'mine' is not NAME=COMMAND"),
        (["--command", "a/b=true"], "'a/b=true' is not NAME=COMMAND"),
        (["--command", "mine=true {foo}"], "its places are {python}, {planner}, {graph}"),
        (["--command", "mine=/no/such/program"], "/no/such/program is no program"),
    ],
)
def test_command_refuses_what_it_cannot_run(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["--to", str(tmp_path), "--instances", "chain-100", *options])
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # a cell that was run is not run again


@pytest.mark.parametrize("line", ["0 1", "0 1 1 forward result x", "0 -1 1 forward value", "x"])
def test_checker_refuses_a_graph_that_is_none(line: str) -> None:
    with pytest.raises(IllegalError, match="graph, line 1: not the operator 0"):
        check(line, "")


def test_page_and_charts_are_those_of_the_result() -> None:
    from viz.theme import THEMES

    board = report.Board(json.loads(report.RESULT.read_text(encoding="utf-8")))
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.with_summary(page, board) == page, "run python -m benchmarks.leaderboard.report"
    table = (ROOT / "benchmarks/results/leaderboard.md").read_text(encoding="utf-8")
    assert report.verdict(board) in table
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        drawn = (report.IMAGES / f"leaderboard{suffix}.svg").read_text(encoding="utf-8")
        assert report.chart(board, THEMES[theme]) == drawn
        assert len(drawn.encode()) <= 40_000
        used = re.findall(r'<use href="#([\w-]+)"', drawn)
        assert set(used) <= set(re.findall(r' id="([\w-]+)"', drawn))
        legal = [
            each for outcomes in board.settings.values() for each in outcomes.values()
            if each.status == "legal"
        ]  # fmt: skip
        assert len(used) == len(legal) + len({each.planner for each in legal})  # and the legend


def test_page_names_each_published_file_with_checksum() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    for published in instances.PUBLISHED.values():
        assert f"| `{published.file}` | `{published.sha256}` |" in page


# The difference view of two cells -----------------------------------------------------------------

DROPPED = """compute 0  # large, and read late
free 0
compute 1
compute 2
free 1
compute 3
free 2
compute 0
compute 4
free 0
free 3
"""


@pytest.fixture
def two_cells(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of two cells of one instance: one of ours, and one of somebody's."""
    monkeypatch.setitem(instances.OWN, "late", lambda: LATE)
    for planner, schedule in (("mine", STORE_ALL), ("tinyckpt", DROPPED)):
        one = cell(tmp_path, WRITE.format(schedule))
        cells.run(replace(one, planner=planner), folder)
    return folder


def written_by(folder: Path, *words: str) -> str:
    """Return the page that the command writes."""
    page = folder.parent / "page.html"
    command.main(["--to", str(folder), "--difference", *words, "-o", str(page)])
    return page.read_text(encoding="utf-8")


def test_difference_is_of_ours_and_the_best_other(two_cells: Path) -> None:
    usual = written_by(two_cells, "late", "100")
    assert "<title>late at 100 %: tinyckpt +37.50 %, mine +0.00 %</title>" in usual
    swapped = written_by(two_cells, "late", "100", "mine", "tinyckpt")
    assert "<title>late at 100 %: mine +0.00 %, tinyckpt +37.50 %</title>" in swapped


def test_replayed_cell_is_what_the_checker_counted(two_cells: Path) -> None:
    outcome = cells.read_outcome(two_cells / "late.100.tinyckpt.json")
    trace = difference.trace_of(outcome, LATE, DROPPED)
    assert (outcome.cost, outcome.peak, trace.peak_bytes, trace.recomputations) == (11, 61, 61, 1)
    assert trace.schedule.policy == "tinyckpt"
    with pytest.raises(cells.CellError, match=r"^late\.100\.tinyckpt: line 1: 4 reads 0, which is"):
        difference.trace_of(outcome, LATE, "compute 4")
    said = "has cost 8 peak 70 order given, the outcome says cost 11 peak 61 order given"
    with pytest.raises(cells.CellError, match=said):
        difference.trace_of(outcome, LATE, STORE_ALL)
    with pytest.raises(cells.CellError, match="of another graph"):
        difference.trace_of(outcome, replace(LATE, costs=(1,) * 5), DROPPED)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["late", "50"], "has no cell of late at 50 %"),
        (["late", "100", "mine", "dtr"], "late.100.dtr is not run"),
        (["late", "100", "mine", "mine"], "nothing to show as 'difference'"),
        (["nope", "100"], "no instance nope"),
    ],
)
def test_difference_refuses_cells_that_are_not_there(
    words: list[str], said: str, two_cells: Path
) -> None:
    with pytest.raises(SystemExit, match=re.escape(said)):
        written_by(two_cells, *words)


@pytest.mark.parametrize("words", [["late"], ["late", "half"], ["late", "100", "mine"]])
def test_difference_says_what_it_takes(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        written_by(tmp_path, *words)
    assert "it is --difference INSTANCE SHARE [PLANNER PLANNER]" in capsys.readouterr().err


def test_difference_without_a_schedule_of_others_is_refused(two_cells: Path) -> None:
    (two_cells / "late.100.mine.json").unlink()
    board = difference.board_in(two_cells, "late", 100, LATE)
    with pytest.raises(cells.CellError, match="late at 100 %: no other planner has a schedule"):
        difference.pair_of(board, ("late", 100))


def test_schedules_of_our_own_instances_are_collected(
    two_cells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference, "SHIPPED", two_cells / "shipped.json.gz")
    for suffix in ("json", "schedule"):  # of a published instance
        path = two_cells / f"late.100.mine.{suffix}"
        path.with_name(f"unet.50.mine.{suffix}").write_bytes(path.read_bytes())
    difference.collect(two_cells)
    assert difference.shipped() == {("late", 100): {"mine": STORE_ALL, "tinyckpt": DROPPED}}


@pytest.mark.long
def test_shipped_schedules_are_those_of_the_legal_cells_of_our_own_instances() -> None:
    board = report.Board(json.loads(report.RESULT.read_text(encoding="utf-8")))
    legal = {
        setting: {name for name, each in outcomes.items() if each.status == "legal"}
        for setting, outcomes in board.settings.items()
        if setting[0] in instances.OWN
    }
    shipped = difference.shipped()
    assert {setting: set(schedules) for setting, schedules in shipped.items()} == legal
    for setting, schedules in shipped.items():
        instance = instances.instance_of(setting[0], None)
        for name, schedule in schedules.items():
            difference.trace_of(board.settings[setting][name], instance, schedule)


def test_table_of_site_has_every_cell_and_links_those_that_ship(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import leaderboard_cells

    table = leaderboard_cells.table()
    board = leaderboard_cells.read_board()
    rows = re.findall(r"<tr( data-.*?)>(.*)</tr>", table)
    for (_, filled), row in zip(rows, report.rows(board), strict=True):
        texts = re.findall(r"<td>(?:<a [^>]*>)?(.*?)(?:</a>)?</td>", filled)
        assert texts == list(map(str, row))
    assert rows[0][0] == (
        ' data-instances="networks" data-budget="80 %" data-planner="greedy" data-order="given"'
    )
    shipped = difference.shipped()
    assert table.count("<a href=") == sum(map(len, shipped.values()))
    names = list(shipped["chain-100", 50])
    place = {name: number for number, name in enumerate(names, start=1)}
    against = f"{place['tinyckpt']}-{place['sqrt_n']}"
    link = f'href="labs/leaderboard-chain-100-50.html#difference={against}"'
    assert f'<a {link} aria-label="+40.30 %: sqrt_n against tinyckpt">+40.30 %</a>' in table
