"""Command line: output, files written, exit codes."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.cli.main import JOBS, main

cli = import_module("tinyckpt.cli.main")  # the name in the package is the function


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_plan_prints_steps_and_writes_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    code, out, _ = run(capsys, "plan", "chain:4", "--policy", "sqrt_n", "-o", str(path))
    assert code == 0
    assert " 6  compute  b4   live 5 nodes, 2.5 KiB" in out
    assert "10 evaluations, 1 of them recomputations; peak 5 nodes" in out
    assert tc.load_trace(path).peak_nodes == 5


def test_plan_prints_no_steps_of_long_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "chain:100", "--segments", "5")
    assert code == 0
    assert "too many to print" in out
    assert "100 stages in 5 segments" in out


def test_plan_with_retain_saves_named_values(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "chain:4", "--policy", "retain", "--keep", "f2")
    assert code == 0
    assert "kept 1 values: f2" in out
    code, out, _ = run(capsys, "plan", "chain:4", "--policy", "regions", "--keep", "f?")
    assert code == 0
    assert "; kept 4 values of the inside: f1, f2, f3, f4" in out


def test_compare_prints_a_row_per_policy(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", "chain:16")
    assert code == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines()[2:]}
    assert {policy: row[1:4] for policy, row in rows.items()} == {
        "store_all": ["33", "1.00", "18"],
        "sqrt_n": ["42", "1.27", "9"],
        "recompute_all": ["153", "4.64", "3"],
    }
    # All three are optimal at their own peaks.
    assert [row[6] for row in rows.values()] == ["33", "42", "153"]
    assert [row[8] for row in rows.values()] == ["33", "42", "153"]


@pytest.mark.parametrize("network", ["chain:3", "mlp:2x4", "residual:2x4", "branching:2x4"])
def test_run_trace_equals_replay(capsys: pytest.CaptureFixture[str], network: str) -> None:
    code, out, _ = run(capsys, "run", network)
    assert code == 0
    assert "agrees with the replay" in out


def test_network_from_python_file_is_planned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "import tinyckpt as tc\n"
        "def make():\n"
        "    return tc.networks.Network('mine', lambda p, x: tc.sum(tc.tanh(x * p)),\n"
        "                               (tc.Spec(3), tc.Spec(3)))\n"
        "def wrong():\n    return 3\n"
    )
    code, out, _ = run(capsys, "compare", f"{path}:make", "--policy", "store_all")
    assert code == 0
    assert "mine: 6 operators, 3 of them forward" in out
    for function, message in (("nothing", "has no function"), ("wrong", "returned a int")):
        code, _, err = run(capsys, "plan", f"{path}:{function}")
        assert code == 2
        assert message in err
    path.write_text("def make():\n    return 1 / 0\n")
    assert "ZeroDivisionError: division by zero" in run(capsys, "plan", f"{path}:make")[2]
    assert "line 2" in run(capsys, "plan", f"{path}:make")[2]
    path.write_text("import nothing_of_this_name\n")
    assert "ModuleNotFoundError" in run(capsys, "plan", f"{path}:make")[2]
    path.write_text("def broken(:\n")
    assert "not valid Python" in run(capsys, "plan", f"{path}:make")[2]
    assert "cannot read" in run(capsys, "plan", f"{tmp_path}/none.py:make")[2]


def test_picture_suffixes_equal_those_of_viz() -> None:
    from viz.raster.encode import SUFFIXES

    assert set(cli.ANIMATIONS) == set(SUFFIXES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "chain:4", "-o", "/no/such/folder/t.json"), "cannot write /no/such/folder"),
        (("run", "chain:4", "--backend", "cupy"), "needs CuPy, which is not installed"),
        (("gif", "chain:4", "-o", "/dev/full", "--format", "gif"), "No space left on device"),
        (("gif", "missing.json", "-o", "x.gif"), "cannot read missing.json"),
    ],
)
def test_failed_job_exits_with_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # wherever this runs, there is none
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert message in err
    assert err.startswith("tinyckpt: ")


@pytest.mark.long
def test_plan_within_budget_prints_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "chain:16", "--budget", "9 nodes")
    assert code == 0
    assert "optimal: no schedule within 9 nodes costs less than 42 evaluations" in out
    code, out, _ = run(capsys, "plan", "chain:16", "--budget", "50 %", "--policy", "greedy")
    assert "greedy on chain:16" in out
    code, _, err = run(capsys, "plan", "chain:16", "--budget", "2 nodes")
    assert code == 1
    assert "the smallest peak found is 3 nodes, which is proven to be the smallest there is" in err
    code, _, err = run(capsys, "plan", "chain:16", "--budget", "a lot")
    assert code == 1
    assert "expected '64 MiB'" in err


@pytest.mark.long
def test_plan_prints_explanation_and_frontier(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "chain:8", "--budget", "5 nodes", "--explain")
    assert code == 0
    assert "At the peak, step" in out
    assert "With 1 node more, 21 evaluations would do instead of 22 evaluations." in out
    code, out, _ = run(capsys, "plan", "chain:8", "--frontier", "--budget", "1 node")
    assert code == 0
    peaks = {line.split()[-5]: line.split()[-3] for line in out.splitlines()[1:]}
    assert peaks == {
        "3": "45", "4": "26", "5": "22", "6": "21", "7": "20", "8": "19", "9": "18", "10": "17",
    }  # fmt: skip


def test_policy_options_are_passed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "chain:10", "--policy", "revolve", "--set", "slots=3")
    assert code == 0
    assert "11 stages from 3 slots: 18 advances" in out


def test_options_of_every_plan_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    in_place = ("--set", "in_place=True")
    code, out, _ = run(capsys, "plan", "chain:10", "--policy", "store_all", *in_place)
    assert code == 0
    assert "peak 12 nodes, 5.5 KiB" in out  # 11 values of 512 bytes instead of 12
    assert "10 evaluations in place" in out
    budget = ("--budget", "6 nodes", "--set", "order=given", "--set", "improve=True")
    for more in ((), in_place):
        code, out, _ = run(capsys, "plan", "chain:10", *budget, *more)
        assert code == 0
        assert "27 evaluations" in out
        assert ("in place" in out) == bool(more)
    code, out, _ = run(capsys, "compare", "chain:10", *budget[:4], "--time-limit", "2")
    assert code == 0
    assert "best: revolve" in out


def test_set_option_accepts_single_name(capsys: pytest.CaptureFixture[str]) -> None:
    rule = ("--set", "rule=save_only_these_names", "--set", "names=attention_out")
    code, out, _ = run(capsys, "plan", "transformer:1x64", "--policy", "saveable", *rule)
    assert code == 0
    assert "save_only_these_names: 1 of" in out


@pytest.mark.long
def test_written_graph_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "unet.json"
    code, out, _ = run(capsys, "graph", "unet:1", "-o", str(path))
    assert code == 0
    assert out.startswith("unet: 168 operators, 53 of them forward; sources ")
    code, out, _ = run(capsys, "compare", str(path), "--cost", "flops", "--time-limit", "1")
    assert code == 0
    assert "recompute_all" in out
    assert run(capsys, "run", str(path))[0] == 1
    require("PIL")
    picture = tmp_path / "unet.gif"
    assert run(capsys, "gif", str(path), "--policy", "store_all", "-o", str(picture))[0] == 0


@pytest.mark.long
def test_output_format_follows_suffix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def begins(name: str, *arguments: str) -> bytes:
        path = tmp_path / name
        code, out, err = run(capsys, *arguments, "-o", str(path))
        assert (code, err) == (0, "")
        assert out.endswith(f"written to {path}\n")
        return path.read_bytes()[:60]

    assert begins("t.csv", "plan", "chain:4").startswith(b"step,verb,id,name,")
    assert begins("t.chrome.json", "plan", "chain:4").startswith(b'{"displayTimeUnit"')
    assert begins("T.JSON", "plan", "chain:4").startswith(b'{"schema": "tinyckpt.trace"')
    require("matplotlib")
    assert begins("t.pdf", "plan", "chain:4").startswith(b"%PDF")
    assert begins("f.png", "plan", "chain:4", "--frontier").startswith(b"\x89PNG")
    assert begins("c.svg", "compare", "chain:4").startswith(b"<?xml")


def test_play_accepts_network_and_saved_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("PIL")
    page, trace = tmp_path / "both.html", tmp_path / "trace.json"
    policies = ("--policy", "store_all", "--policy", "sqrt_n")
    code, out, _ = run(capsys, "play", "chain:4", *policies, "--theme", "dark", "-o", str(page))
    assert (code, out) == (0, f"written to {page}; open it in a browser\n")
    assert '<html lang="en" data-theme="dark" ' in page.read_text(encoding="utf-8")
    assert run(capsys, "plan", "chain:4", "--budget", "4 nodes", "-o", str(trace))[0] == 0
    assert run(capsys, "play", str(trace), "--title", "mine", "-o", str(page))[0] == 0
    assert "<title>mine</title>" in page.read_text(encoding="utf-8")


@pytest.mark.long
def test_compare_best_known_never_costs_more_and_budget_row_is_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policies = ("--policy", "sqrt_n", "--policy", "greedy")
    code, out, _ = run(capsys, "compare", "mlp:4x8", *policies, "--budget", "80 %")
    rows = [line.split() for line in out.splitlines()[2:5]]  # then: whether the search was cut
    assert code == 0
    assert [row[0] for row in rows] == ["sqrt_n", "greedy", "best:"]
    for row in rows:
        own, known = (int(row[i - 1]) for i, word in enumerate(row) if word == "evaluations")
        assert known <= own


def test_compare_skips_measuring_of_long_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for limit, measured in (("0", False), ("5", True)):
        code, out, _ = run(capsys, "compare", "chain:4", "--time-limit", limit)
        assert code == 0
        rows = out.splitlines()[2:5]
        assert all(line.endswith(" ms" if measured else " -") for line in rows)


def test_help_lists_networks_policies_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for word in ("start here", "chain:N", "sqrt_n", "recompute_all", "path/to/file.py:function"):
        assert word in out


@pytest.mark.parametrize("command", JOBS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"usage: tinyckpt {command}" in out


def test_python_m_tinyckpt_runs() -> None:
    command = [sys.executable, "-m", "tinyckpt", "plan", "chain:2"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "peak 4 nodes" in result.stdout
    assert result.stderr == ""


def test_compare_omits_long_schedule_unless_requested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare", "chain:1000"]) == 0
    text = capsys.readouterr().out
    assert "recompute_all is left out: its schedule would have about 1,035,470 steps" in text
    assert "--policy recompute_all plans it anyway" in text
    assert text.count("2,939 evaluations") == 2  # sqrt_n is the best known at its own peak
    assert main(["compare", "chain:30", "--policy", "recompute_all"]) == 0
    assert "left out" not in capsys.readouterr().out
