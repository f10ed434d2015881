"""``tinyckpt pipe``: simulation and refusals; execution is tested under MPI."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run as run_command
from tinyckpt.cli import pipe as pipes


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_command(capsys, "pipe", *arguments)


def test_pipe_prints_simulated_time_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, "chain:8", "--stages", "4", "--micro-batches", "8", "--cost", "evaluations"
    )
    assert code == 0
    assert out.splitlines() == [
        "device  operators            busy  in flight     peak  parameters and gradients",
        "     0     0 to 1  32 evaluations          4  5.0 KiB                   1.0 KiB",
        "     1     2 to 3  32 evaluations          3  5.5 KiB                       0 B",
        "     2     4 to 5  32 evaluations          2  4.0 KiB                       0 B",
        "     3     6 to 7  40 evaluations          1  2.5 KiB                       0 B",
        "1f1b of chain:8, 8 micro-batches: 52 evaluations from end to end, 34.6 % of all devices' "
        "time idle",
    ]


@pytest.mark.long
def test_pipe_plans_stages_by_policy_and_budget(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("chain:16", "--stages", "2", "--micro-batches", "4", "--cost", "evaluations")
    _, stored, _ = run(capsys, *given)
    _, planned, _ = run(capsys, *given, "--budget", "5 nodes", "--recompute", "early")
    assert stored != planned
    for schedule in ("gpipe", "interleaved", "zb-h1", "v-min", "v-half"):
        code, out, _ = run(capsys, *given, "--schedule", schedule, "--policy", "sqrt_n")
        assert code == 0
        assert f"{schedule} of chain:16" in out
        # What is in flight is counted by stage where a device has two.
        assert (" by stage" in out) == (schedule in ("interleaved", "v-min", "v-half"))


def test_pipe_accepts_chunks_beside_a_schedule_without(capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--schedule", "interleaved", "--chunks", "2", "--schedule", "1f1b")
    assert run(capsys, "mlp:4x8", "--stages", "2", "--micro-batches", "4", *both)[0] == 0


@pytest.mark.long
def test_pipe_compares_and_draws_schedules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("matplotlib")
    given = ("chain:16", "--stages", "2", "--micro-batches", "4", "--cost", "evaluations")
    several = ("--schedule", "1f1b", "--schedule", "v-half")
    path = tmp_path / "pipe.svg"
    code, out, _ = run(capsys, *given, *several, "-o", str(path), "--theme", "dark")
    assert code == 0
    parts = [run(capsys, *given, *several[n : n + 2])[1] for n in (0, 2)]
    assert out == f"{''.join(parts)}written to {path}\n"
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    page = tmp_path / "pipe.html"
    code, out, _ = run(capsys, *given, *several, "-o", str(page))
    assert code == 0
    assert out == f"{''.join(parts)}written to {page}; open it in a browser\n"
    assert '<html lang="en" data-theme="auto">' in page.read_text(encoding="utf-8")


def test_pipe_simulates_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    shared = ("mlp:4x16", "--stages", "1", "--micro-batches", "1", "--replicas", "4")
    layers = ("--schedule", "interleaved", "--chunks", "4", "--zero")
    code, out, _ = run(capsys, *shared, *layers, "3")
    assert code == 0
    assert out.splitlines()[-3:-1] == [
        "4 replicas, ZeRO-3; optimizer: adam; in bytes when all gradients are there:",
        "device  parameters  gradients  optimizer state  peak of all  exchanged",
    ]


def test_pipe_stages_default_to_processes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SimpleNamespace(Get_size=lambda: 3)
    monkeypatch.setattr(pipes, "get_mpi", lambda patience: SimpleNamespace(COMM_WORLD=world))
    monkeypatch.setattr(import_module("tinyckpt.cli.main"), "supervise", lambda: None)
    monkeypatch.setattr(pipes, "run_rank", lambda pipeline, *_: print(pipeline.devices) or 0)
    monkeypatch.setenv("PMI_RANK", "0")
    assert run(capsys, "mlp:4x8", "--micro-batches", "4")[:2] == (0, "3\n")
    assert run(capsys, "mlp:4x8", "--micro-batches", "4", "--stages", "2")[:2] == (0, "2\n")
    # A launcher of another MPI: each process would be alone, with all stages.
    monkeypatch.setenv("PMI_SIZE", "4")
    code, out, err = run(capsys, "mlp:4x8", "--micro-batches", "4")
    assert (code, out) == (2, "")
    assert "the launcher started 4 processes, and MPI knows of 3" in err


@pytest.mark.parametrize("optimizer", ["none", "sgd", "momentum", "adam", "adamw"])
def test_pipe_counts_optimizer_state(capsys: pytest.CaptureFixture[str], optimizer: str) -> None:
    given = ("mlp:4x8", "--stages", "1", "--micro-batches", "4", "--replicas", "2")
    code, out, _ = run(capsys, *given, "--optimizer", optimizer)
    assert code == 0
    head, _, row = out.splitlines()[-3:]
    assert head.startswith(f"2 replicas, sharing nothing; optimizer: {optimizer}; in bytes when")
    parameters, _, state = row.split()[1:7:2]
    times = {"momentum": 1, "adam": 2, "adamw": 2}.get(optimizer, 0)
    assert abs(float(state) - times * float(parameters)) <= 0.15  # KiB, rounded
