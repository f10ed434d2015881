"""``tinyckpt pipe``: simulation and refusals; execution is tested under MPI."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import require
from tinyckpt.cli import main
from tinyckpt.cli import pipe as pipes


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["pipe", *arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


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


def test_pipe_refuses_wrong_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "chain:4", "--stages", "9", "--micro-batches", "4")
    assert code == 2
    assert "chain:4 has 4 forward operators, so it can be cut into 1 to 4 stages" in err
    code, _, err = run(capsys, "chain:4", "--stages", "2", "--micro-batches", "0")
    assert code == 2
    assert "1f1b: micro-batches=0" in err
    code, _, err = run(
        capsys, "chain:8", "--stages", "2", "--micro-batches", "3", "--schedule", "interleaved"
    )
    assert code == 2
    assert "it needs a multiple of 2, such as 4" in err


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


def test_pipe_refuses_unknown_output_suffix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(
        capsys, "chain:8", "--stages", "2", "--micro-batches", "2", "-o", str(tmp_path / "x.gif")
    )
    assert (code, out) == (2, "")
    assert "x.gif: it must end in .png, .svg, .pdf, .html, .htm" in err
    code, out, err = run(
        capsys, "chain:8", "--stages", "2", "--micro-batches", "2", "--theme", "auto",
        "-o", str(tmp_path / "x.png"),
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert "--theme auto: a chart is light or dark" in err
    assert not list(tmp_path.iterdir())


def test_pipe_under_launcher_refuses_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr(import_module("tinyckpt.cli.main"), "supervise", lambda: None)
    for more in (("-o", "x.png"), ("--schedule", "gpipe", "--schedule", "1f1b")):
        code, _, err = run(capsys, "chain:8", "--stages", "2", "--micro-batches", "2", *more)
        assert code == 2
        assert "a launcher runs one --schedule, and draws nothing with -o" in err


def test_pipe_simulates_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    shared = ("mlp:4x16", "--stages", "1", "--micro-batches", "1", "--replicas", "4")
    layers = ("--schedule", "interleaved", "--chunks", "4", "--zero")
    code, out, _ = run(capsys, *shared, *layers, "3")
    assert code == 0
    assert out.splitlines()[-3:-1] == [
        "4 replicas, ZeRO-3; optimizer: adam; in bytes when all gradients are there:",
        "device  parameters  gradients  optimizer state  peak of all  exchanged",
    ]
    code, _, error = run(capsys, *shared, "--chunks", "4")
    assert code == 2
    assert "--chunks is for --schedule interleaved, not 1f1b" in error


def test_pipe_stages_default_to_processes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, "mlp:4x8", "--micro-batches", "4")
    assert (code, out) == (2, "")
    assert "arguments are required: --stages; a launcher knows it" in err
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


def test_pipe_refuses_options_without_effect(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("mlp:4x8", "--stages", "2", "--micro-batches", "4")
    for more, what in (
        (("--zero", "2"), "--zero 2 is for several --replicas"),
        (("--chunks", "2"), "--chunks is for --schedule interleaved, not 1f1b"),
        (("--theme", "dark"), "--theme dark is for what -o draws"),
        (("--recompute", "early"), "--recompute early: store_all computes nothing again"),
        (("--recompute", "late", "--policy", "store_all"), "--recompute late: store_all computes"),
        (("--patience", "3"), "--patience is for what runs; start it by mpiexec"),
        (("--steps", "3"), "--steps is for what runs"),
        (("--rate", "0.1"), "--rate is for what runs"),
        (("--zero", "1", "--replicas", "2", "--optimizer", "none"), "--zero is about an --optimiz"),
        (("--replicas", "0"), "--replicas 0: it must be 1 or more"),
        (("--policy", "sqrtn"), "unknown policy 'sqrtn' (did you mean sqrt_n?)"),
    ):
        code, out, err = run(capsys, *given, *more)
        assert (code, out) == (2, "")
        assert what in err
    both = ("--schedule", "interleaved", "--chunks", "2", "--schedule", "1f1b")
    assert run(capsys, *given, *both)[0] == 0


def test_pipe_options_under_launcher(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr(import_module("tinyckpt.cli.main"), "supervise", lambda: None)
    given = ("mlp:4x8", "--stages", "2", "--micro-batches", "4")
    for more, what in (
        (("--steps", "3"), "--steps is about an --optimizer, and there is none"),
        (("--rate", "3"), "--rate is about an --optimizer, and there is none"),
        (("--optimizer", "sgd", "--steps", "0"), "--steps 0: it must be 1 or more"),
        (("--optimizer", "sgd", "--steps", "100000000"), "at most 10,000,000 micro-batches total"),
        (("--optimizer", "sgd", "--rate", "nan"), "--rate nan: it must be a number above 0"),
        (("--optimizer", "sgd", "--rate", "0"), "--rate 0.0: it must be a number above 0"),
        (("--patience", "inf"), "--patience inf: it must be a number of seconds"),
        (("--patience", "0"), "--patience 0.0: it must be a number of seconds"),
    ):
        code, out, err = run(capsys, *given, *more)
        assert (code, out) == (2, "")
        assert what in err


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
