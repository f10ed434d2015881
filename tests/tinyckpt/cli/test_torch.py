"""``tinyckpt torch``: whether a model fits, and the code it prints."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch  # noqa: E402

from tests.torch_models import eager_step  # noqa: E402
from tinyckpt.base.units import size_text  # noqa: E402
from tinyckpt.cli import main  # noqa: E402
from tinyckpt.interop.torch import allocator_peak  # noqa: E402
from tinyckpt.interop.torch import isolated_worker as isolation  # noqa: E402

MODEL = """
import torch
from tests.torch_models import GPT, tokens_for

def make():
    torch.manual_seed(0)
    return tokens_for(GPT(2, 32, 2, 64), 4, 64)

def dropout():
    torch.manual_seed(0)
    return tokens_for(GPT(2, 32, 2, 64, rate=0.1), 4, 64)

def batch():
    model, (tokens, labels) = make()
    return model, {"labels": labels, "tokens": tokens}

def meta():
    with torch.device("meta"):
        return make()

def alone():
    return GPT(2, 32, 2, 64)

def broken():
    raise ValueError("no data")

def number():
    return 3, ()

def kind():
    return GPT, ()
"""

LAYERS = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        from later_here import squares
        return squares(self.layer(x))
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "my_model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.nightly
def test_batch_may_be_one_dict(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--budget", "80 %", "--advise", "--no-workspace"
    expected = said(capsys, f"{model}:make", *options)
    assert said(capsys, f"{model}:batch", *options) == expected
    assert "model.get_submodule" in expected[1]


@pytest.mark.usefixtures("hurried")
def test_printed_code_runs_within_budget(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, f"{model}:make", "--budget", "80 %")
    names: dict[str, Any] = {}
    exec(Path(model).read_text(encoding="utf-8"), names)
    names["model"], args = names["make"]()
    lines = out.partition("Write:\n\n")[2].splitlines()[:3]
    exec("\n".join(lines), names)
    compiled = names["model"]
    compiled(*args).backward()
    compiled.zero_grad(set_to_none=True)
    peak, _ = allocator_peak(lambda: compiled(*args).backward())
    torch.compiler.reset()
    budget = int(lines[2].partition("tct.backend(")[2].partition(")")[0])
    assert 0 < peak <= 1.005 * budget


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["torch", *arguments, "--time-limit", "2"])
    out, err = capsys.readouterr()
    return code, out, err


def test_model_file_imports_neighbours_in_forward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "layers_here.py").write_text(LAYERS)
    (tmp_path / "later_here.py").write_text("def squares(x): return x.square().sum()")
    path = tmp_path / "net_here.py"
    path.write_text(
        "import torch\nfrom layers_here import Net\ndef make(): return Net(), (torch.ones(2, 4),)"
    )
    paths = list(sys.path)
    for options in ([], ["--advise"]):
        code, out, _ = said(capsys, f"{path}:make", "--budget", "1 MiB", *options)
        assert (code, out.splitlines()[0].split(" ")[:2]) == (0, ["Net", "fits"])
    assert sys.path == paths
    for name in ("net_here", "layers_here", "later_here"):
        del sys.modules[name]


@pytest.mark.nightly
def test_fitting_model_needs_no_code(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, f"{model}:make", "--budget", "1 GiB")
    assert code == 0
    assert out.startswith("GPT fits as it is; nothing to write.\n")
    assert "optimizer state" in out
    code, out, _ = said(capsys, f"{model}:make", "--budget", "1 GiB", "--advise")
    assert (code, out.splitlines()[0]) == (0, "GPT fits as it is.")


@pytest.mark.nightly
def test_columns_are_explained(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    # On a CPU plain dropout evaluates other kernels than compiled dropout does, with larger masks.
    names: dict[str, Any] = {}
    exec(Path(model).read_text(encoding="utf-8"), names)
    built, args = names["dropout"]()
    stepped = eager_step(built, args)
    plain = allocator_peak(stepped)[0] + sum(x.nbytes for x in (*built.parameters(), *args))
    _, out, _ = said(capsys, f"{model}:dropout", "--budget", "1 GiB", "--optimizer", "none")
    now = next(line for line in out.splitlines() if line.startswith("total")).split("  ")[-1]
    shown = f"Columns are compiled steps; one of plain training takes {size_text(plain)}."
    assert shown in out
    assert now != size_text(plain)
    _, out, _ = said(
        capsys, f"{model}:dropout", "--budget", "1 GiB", "--optimizer", "none", "--advise"
    )
    assert next(line for line in out.splitlines() if line.startswith("total")).split("  ")[-1] == (
        size_text(plain)
    )
    assert "\nColumns are steps of plain training; a compiled one" in out
    between = f"{plain - 1} bytes"
    _, out, _ = said(capsys, f"{model}:dropout", "--budget", between, "--optimizer", "none")
    assert out.startswith("GPT fits when it is compiled, with nothing recomputed.")
    assert "tct.backend(" in out


@pytest.mark.nightly
def test_model_over_budget_gets_plan_and_code(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "out.html"
    code, out, _ = said(
        capsys, f"{model}:make", "--budget", "80 %", "--explain", "--play", str(page)
    )
    assert code == 0
    assert out.startswith("GPT does not fit as it is.")
    assert "GPT fits, with a plan, at 1." in out
    _, _, written = out.partition("Write:\n\n")
    lines = written.splitlines()[:3]
    assert lines[:2] == ["import torch", "from tinyckpt.interop import torch as tct"]
    assert lines[2].startswith("model = torch.compile(model, backend=tct.backend(")
    rows = [line.split("  ") for line in out.splitlines() if line.startswith("total")]
    assert len(rows) == 2  # as it is, and beside it the plan
    assert "GPT" in page.read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("more", [[], ["--advise"]])
def test_meta_model_gets_same_report_as_real_one(
    model: str, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    code, out, _ = said(capsys, f"{model}:meta", "--budget", "80 %", *more)
    assert code == 0
    assert out.endswith("the workspace of kernels is not counted.\n")
    _, real, _ = said(capsys, f"{model}:make", "--budget", "80 %", *more)
    found, expected = (
        [row for row in text.splitlines() if row.startswith(("parameters", "gradients  "))]
        for text in (out, real)
    )
    assert found
    if not more:
        assert found == expected


@pytest.mark.nightly
@pytest.mark.parametrize("more", [[], ["--advise"]])
def test_no_workspace_runs_no_kernel(
    model: str,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation.WORKER, "start", lambda: pytest.fail("a process is started"))
    monkeypatch.setattr(isolation, "evaluate_requests", lambda *given: pytest.fail("kernels run"))
    code, out, _ = said(capsys, f"{model}:make", "--budget", "90 %", "--no-workspace", *more)
    assert code == 0
    assert out.endswith(
        "--no-workspace, so no kernel ran: the workspace of kernels is not counted.\n"
    )
    assert more or "workspace=False), fullgraph=True)" in out


@pytest.mark.nightly
def test_advise_counts_optimizer_state_in_budget(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, plain, _ = said(
        capsys, f"{model}:make", "--budget", "85 %", "--advise", "--optimizer", "sgd"
    )
    assert "advised" in plain
    assert "module.forward = partial(checkpoint, module.forward, use_reentrant=False)" in plain
    _, adam, _ = said(capsys, f"{model}:make", "--budget", "85 %", "--advise")
    of_sgd, of_adam = (
        next(line for line in out.splitlines() if line.startswith("optimizer state"))
        for out in (plain, adam)
    )
    assert of_sgd.split()[2] == "0"
    assert of_adam.split()[2] != "0"


@pytest.mark.nightly
def test_code_is_written_for_what_is_asked(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = f"{model}:make", "--budget", "85 %", "--no-workspace", "--advise"
    _, plain, _ = said(capsys, *options)
    code, out, _ = said(capsys, *options, "--code", "torch_remat")
    assert code == 0
    assert "torch_remat.checkpoint(region_name=name)" in out
    assert out.partition("import torch_remat")[0] == plain.partition("from functools")[0]
    with pytest.raises(SystemExit):
        said(capsys, *options, "--code", "torchtitan")
    out, err = capsys.readouterr()
    assert (out, "torchtitan cannot express this advice" in err) == ("", True)


def test_modules_need_no_budget_and_no_plan(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, f"{model}:make", "--modules", "--optimizer", "sgd")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["module", "GPT", "tokens", "places"]
    _, advised, _ = said(
        capsys, f"{model}:make", "--budget", "1 GiB", "--advise", "--optimizer", "sgd"
    )
    total = next(line for line in advised.splitlines() if line.startswith("total")).split("  ")[-1]
    assert lines[-1].endswith(f"{total} total")
    with pytest.raises(SystemExit):
        said(capsys, f"{model}:make", "--modules", "--code", "torch")
    assert "--code goes with --advise or --hf" in capsys.readouterr().err
    for arguments, text in (
        (["--modules", "--advise"], "--modules is about plain training as it is"),
        ([], "expected --budget, --device, or --modules"),
    ):
        with pytest.raises(SystemExit):
            said(capsys, f"{model}:make", *arguments)
        assert text in capsys.readouterr().err


def test_device_instead_of_a_budget(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(
        capsys, f"{model}:make", "--device", "T4-16GB", "--optimizer", "adamw-fused"
    )
    assert code == 0
    assert out.startswith("GPT fits as it is.\n")
    assert re.search(r"^on T4-16GB +at the peak  known from$", out, re.M)
    assert re.search(r"^total +\d+\.\d MiB  of 14.8 GiB$", out, re.M)
    code, _, err = said(capsys, f"{model}:make", "--device", "T4")
    assert (code, "device 'T4'" in err) == (1, True)
    for arguments in (["--device", "T4-16GB", "--modules"], ["--calibrate", "device.json"]):
        with pytest.raises(SystemExit):
            said(capsys, f"{model}:make", *arguments)
    code, _, err = said(capsys, f"{model}:make", "--device", "")
    assert (code, "device ''" in err) == (1, True)
    if not torch.cuda.is_available():
        code, _, err = said(capsys, "--calibrate", "device.json")
        assert (code, "a calibration needs a CUDA device" in err) == (1, True)


@pytest.mark.nightly
def test_infeasible_budget_reports_smallest_total(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--advise"]):
        code, _, err = said(capsys, f"{model}:make", "--budget", "2 MiB", *more)
        assert code == 1
        assert "it does not fit in 2 MiB" in err
        assert "with parameters and the optimizer's state," in err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (":alone", "returned a GPT; expected a tuple of a model and its arguments"),
        (":broken", "ValueError: no data"),
        (":number", "expected a torch.nn.Module whose forward returns the loss, got int"),
        (":kind", "expected a torch.nn.Module whose forward returns the loss, got the class GPT"),
        (":makes", "has no function 'makes' (did you mean make?)"),
        ("", "expected path/to/file.py:function"),
    ],
)
def test_wrong_usage_states_expected_form(
    model: str, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["torch", f"{model}{name}", "--budget", "1 GiB"])
    assert exit_.value.code == 2
    assert text in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["torch", f"{model}:make", "--budget", "1 GiB", "--advise", "--explain"])
    assert "--advise and --hf are about plain training" in capsys.readouterr().err
