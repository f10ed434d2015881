"""What the command does not begin: work for which memory is short, and searches without time."""

from importlib import import_module

import pytest

from tests.tinyckpt.cli.test_cli import run
from tinyckpt.networks import memory, network_from_text

cli = import_module("tinyckpt.cli.main")


def test_a_run_that_does_not_fit_is_refused_at_once(
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


def test_what_does_not_fit_is_compared_without_being_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 1000)
    code, out, _ = run(capsys, "compare", "mlp:4x64")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[2:5]] == ["-"] * 3
