"""``tinyckpt compare --techniques``: output, files and refusals."""

import json
from pathlib import Path

import pytest

from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run as run_command
from tinyckpt.cli import main
from tinyckpt.techniques import TECHNIQUES

QUICK = ("--time-limit", "0.2")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_command(capsys, "compare", *arguments)


def test_prints_a_row_per_technique(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("chain:16", "--techniques", "--budget", "50%", "--cost", "evaluations")
    code, out, err = run(capsys, *given, "--bandwidth", "1e30", *QUICK)
    assert (code, err) == (0, "")
    head, columns, *rows = out.splitlines()
    assert head == "chain:16 within 4.5 KiB; time in evaluations, copies at 1e+30 bytes for each"
    assert columns.split()[:2] == ["technique", "peak"]
    assert [row[: len(name)] for row, name in zip(rows, TECHNIQUES, strict=True)] == list(
        TECHNIQUES
    )
    assert rows[1].split()[1:7] == ["4.5", "KiB", "50.0", "%", "yes", "1.273"]
    assert rows[2].endswith("4.5 KiB of the host")
    assert rows[4].endswith("it needs the network's function, and only a graph is given")


def test_defaults_are_half_of_store_all_and_flops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "mlp:2x8", "--techniques", *QUICK, "--stages", "2", "--chunks", "4")
    assert code == 0
    assert out.startswith("mlp:2x8 within 4.8 KiB; time in FLOPs, copies at 0.001641 bytes")
    assert "2 devices, 8 micro-batches" in out
    assert "logits in 4 pieces" in out


def test_json_output_equals_printed_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "techniques.json"
    code, out, _ = run(capsys, "mlp:2x8", "--techniques", *QUICK, "-o", str(path))
    assert code == 0
    assert out.splitlines()[-1] == f"written to {path}"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert [row["name"] for row in document["rows"]] == list(TECHNIQUES)
    assert document["budget"] * 2 == document["rows"][0]["peak"]


@pytest.mark.long
def test_chart_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    require("matplotlib")
    path = tmp_path / "techniques.svg"
    code, out, _ = run(capsys, "chain:8", "--techniques", *QUICK, "-o", str(path))
    assert code == 0
    assert out.splitlines()[-1] == f"written to {path}"
    assert path.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("budget", "message"),
    [("much", "tinyckpt: budget 'much'; expected"), ("9 nodes", "in bytes, not in nodes")],
)
def test_bad_budget_exits_with_1(
    capsys: pytest.CaptureFixture[str], budget: str, message: str
) -> None:
    code, out, err = run(capsys, "mlp:2x8", "--techniques", "--budget", budget)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    ["compare chain:4 --techniques", "pipe chain:4 --stages 2 --micro-batches 2", "graph chain:4"],
)
def test_missing_folder_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "no" / ("x.json" if "pipe" not in command else "x.html")
    assert main([*command.split(), "-o", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"tinyckpt: cannot write {path}: there is no folder {path.parent}\n"
