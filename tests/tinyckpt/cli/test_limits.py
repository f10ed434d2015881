"""Command line: admission by memory, and time limits."""

from importlib import import_module
from typing import Any

import pytest

from tests.tinyckpt.cli.test_cli import run
from tinyckpt.cli import compare as comparing
from tinyckpt.cli import resolve_options as request
from tinyckpt.networks import machine_memory as memory
from tinyckpt.networks import network_from_text

cli = import_module("tinyckpt.cli.main")


def test_run_larger_than_memory_is_refused_before_planning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = network_from_text("mlp:4x64")
    monkeypatch.setattr(memory, "memory_of_machine", lambda: graph.source_bytes + 1)
    code, out, err = run(capsys, "run", "mlp:4x64")
    assert (code, out) == (1, "")
    assert err.startswith("tinyckpt: mlp:4x64 under sqrt_n takes, arguments included, ")
    monkeypatch.setattr(memory, "memory_of_machine", lambda: graph.source_bytes - 1)
    monkeypatch.setattr(cli, "schedules_of", lambda *_, **__: pytest.fail("it is planned"))
    code, out, err = run(capsys, "run", "mlp:4x64")
    assert (code, out) == (1, "")
    assert err.startswith("tinyckpt: the arguments of mlp:4x64 take ")
    assert err.count("\n") == 1


def test_compare_does_not_run_what_exceeds_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 1000)
    code, out, _ = run(capsys, "compare", "mlp:4x64")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[2:5]] == ["-"] * 3


@pytest.mark.long
def test_compare_shares_time_limit_among_all_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def watched(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            given.append(options.get("time_limit", 0.0))
            return function(*args, **options)

        return call

    monkeypatch.setattr(request, "plan", watched(request.plan))
    monkeypatch.setattr(comparing, "frontier", watched(comparing.frontier))
    policies = ("--policy", "greedy", "--policy", "sqrt_n", "--policy", "blocks")
    code, _, err = run(
        capsys, "compare", "mlp:3x16", *policies, "--budget", "100 %", "--time-limit", "20"
    )
    assert code == 0, err
    assert len(given) == 5  # three policies, what is best known, and the best within the budget
    assert given[1] == 0
    # Each has a part of what is left, so that all end in time, whatever each takes.
    assert 0 < given[0] <= 20 / 4
    assert 0 < given[2] <= 20 / 3
    assert 0 < given[3] <= 20 / 2
    assert 0 < given[4] <= 20
    # Without, policies and searches have as long as ever.
    given.clear()
    assert run(capsys, "compare", "mlp:3x16", "--policy", "greedy")[0] == 0
    assert given == [0.0, request.SEARCHING]


@pytest.mark.long
def test_compare_reports_what_time_limit_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "run", lambda *_, **__: pytest.fail("it is run"))
    for policies in ((), ("--policy", "sqrt_n")):
        code, out, _ = run(capsys, "compare", "chain:2000", *policies, "--time-limit", "0.01")
        assert code == 0
        assert "-: not measured, for which the time that is left may be too short" in out
    code, out, _ = run(capsys, "compare", "unet", "--time-limit", "0")
    assert "the search for the best known was cut after 0 s; --time-limit gives more" in out
    code, out, err = run(
        capsys, "compare", "chain:3000", "--policy", "recompute_all", "--time-limit", "1"
    )
    assert (code, out) == (2, "")
    assert "--time-limit 1: recompute_all would have about 9,276,839 steps" in err
    code, out, _ = run(
        capsys, "compare", "chain:3000", "--policy", "recompute_all", "--policy", "store_all",
        "--time-limit", "0.01",
    )  # fmt: skip
    assert code == 0
    assert "--policy recompute_all without --time-limit plans it anyway" in out
