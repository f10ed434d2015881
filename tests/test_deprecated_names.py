"""Deprecated names: each works for one version, with a note that names its successor.

The old spelling of budgets in Python is tested in ``planner/portfolio/test_resolve_policy``.
"""

import importlib
import sys

import pytest

from tests.conftest import require
from tinyckpt import techniques
from tinyckpt.cli import main


def test_module_means_warns_and_has_the_names_of_techniques() -> None:
    sys.modules.pop("tinyckpt.means", None)
    with pytest.warns(DeprecationWarning, match=r"tinyckpt\.means is now tinyckpt\.techniques"):
        means = importlib.import_module("tinyckpt.means")
    assert means.weigh is techniques.compare_techniques
    assert means.MEANS is techniques.TECHNIQUES
    assert means.Weighing is techniques.TechniqueComparison


def test_chart_means_warns_and_is_techniques() -> None:
    require("matplotlib")
    from tinyckpt import viz

    with pytest.warns(DeprecationWarning, match=r"viz\.means is now viz\.techniques"):
        assert viz.means is viz.techniques
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        viz.nothing  # noqa: B018


def test_option_means_prints_the_table_and_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "chain:4", "--means", "--time-limit", "0.5"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("technique")
    assert "note: --means is now --techniques" in err


def test_command_prints_old_spelling_of_budget_as_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("plan", "mlp:2x8", "--policy", "greedy", "--time-limit", "0.5", "--budget")
    assert main([*given, "2 MiB in all"]) == 0
    old, err = capsys.readouterr()
    assert err.count("note: budget '2 MiB in all': write '2 MiB total'") == 1
    assert main([*given, "2 MiB total"]) == 0
    assert capsys.readouterr() == (old, "")
