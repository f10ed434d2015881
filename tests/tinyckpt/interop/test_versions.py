"""Compatibility with untested PyTorch versions: a warning, and errors that name what is missing."""

import re
import subprocess
import sys

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch

from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import versions
from tinyckpt.interop.torch.versions import (
    EACH,
    KEYWORDS,
    NEEDED,
    TESTED,
    check_calls,
    check_torch,
)  # fmt: skip

# A version that is not known, without the call that captures joint graphs and what describes them.
UNKNOWN = """
import warnings, torch, torch._functorch.aot_autograd as aot
import torch._functorch._aot_autograd.descriptors as descriptors
import tinyckpt as tc
torch.__version__ = "2.99.0+cpu"
del aot.aot_export_joint_with_descriptors, descriptors.PlainAOTInput
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from tinyckpt.interop import torch as tct
    from tinyckpt.interop import torch as again
(caught,) = caught
assert caught.category is RuntimeWarning and caught.filename == "<string>", caught
assert str(caught.message).startswith("PyTorch 2.99.0+cpu is installed; "), caught
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    def forward(self, x):
        return self.layer(x).sum()
net, x = Net(), torch.ones(2, 4)
tct.advise(net, x, budget=1.0, workspace=False).apply(net)
try:
    tct.trace(net, x, workspace=False)
except tc.BackendError as error:
    print(error)
"""


@pytest.mark.nightly
def test_untested_version_warns_and_advise_works() -> None:
    printed = ran(UNKNOWN)
    missing = "torch._functorch.aot_autograd.aot_export_joint_with_descriptors, torch._functorch."
    assert printed.startswith(f"trace needs {missing}")
    assert printed.endswith(
        "descriptors.PlainAOTInput, which PyTorch 2.99.0+cpu does not have: "
        f"pip install 'torch=={TESTED[-1]}.*'\n"
    )


def test_tested_versions_raise_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for minor in TESTED:
        monkeypatch.setattr(torch, "__version__", f"{minor}.1+cpu")
        check_torch()
    for other in ("2.1.0", "3.0.0"):
        monkeypatch.setattr(torch, "__version__", other)
        with pytest.warns(RuntimeWarning, match=f"PyTorch {other} is installed"):
            check_torch()


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusing() -> dict[str, str]:
    """Return the entry points that raise, with their messages."""
    said = {}
    for entry in EACH:
        try:
            check_calls(entry)
        except tc.BackendError as error:
            said[entry] = str(error)
    return said


@pytest.mark.parametrize("path", NEEDED)
def test_entry_point_names_missing_private_attribute(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = versions.attribute_at(path)
    assert found is not None
    assert refusing() == {}
    module, _, name = path.partition(":")
    with monkeypatch.context() as patch:
        patch.delattr(f"{module}.{name}")
        said = refusing()
    assert set(said) == set(NEEDED[path])
    for entry, text in said.items():
        assert re.match(rf"{entry} needs {module}\.{name}, which PyTorch .* pip install", text)


@pytest.mark.parametrize("entry", EACH)
def test_entry_point_checks_compatibility_first(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "attribute_at", lambda path: None)
    args = (None, None) if entry == "step" else (None,)
    options = {"budget": 1.0} if entry in ("advise", "offload", "selective") else {}
    with pytest.raises(tc.BackendError, match=f"^{entry} needs torch"):
        getattr(tct, entry)(*args, **options)


@pytest.mark.parametrize("path", KEYWORDS)
def test_missing_keyword_parameter_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        versions, "attribute_at", lambda _: lambda joint, *, num_fwd_outputs=0: None
    )
    said = refusing()
    name = path.replace(":", ".")
    absent = ", ".join(f"{name}({key}=)" for key in KEYWORDS[path] if key != "num_fwd_outputs")
    assert absent
    assert set(said) >= set(NEEDED[path])
    assert all(absent in said[entry] for entry in NEEDED[path])


# For each set of entry points: what they alone need is missing, and the others do their work.
WITHOUT = """
import sys, torch
from importlib import import_module
import tinyckpt as tc
from tinyckpt.interop import torch as _
from tinyckpt.interop.torch import versions
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    def forward(self, x):
        return self.layer(x).sum()
net, x, real = Net(), torch.ones(2, 4), versions.attribute_at
def compiled():
    torch.compiler.reset()
    backend = tct.backend(None, workspace=False)
    torch.compile(net, backend=backend, fullgraph=True)(x).backward()
calls = {
    "advise": lambda: tct.advise(net, x, budget=1.0, workspace=False),
    "backend": compiled,
    "compare": lambda: tct.compare(net, x, budgets=(1.0,), time_limit=0),
    "estimate": lambda: tct.estimate(net, x, workspace=False),
    "inductor_partitioner": lambda: tct.inductor_partitioner(1.0),
    "lint": lambda: tct.lint(net, x),
    "memory_by_module": lambda: tct.memory_by_module(net, x),
    "min_cut_schedules": lambda: tct.min_cut_schedules(traced, (0.5,)),
    "offload": lambda: tct.offload(net, x, budget=1.0),
    "partitioner": lambda: tct.partitioner(1.0),
    "selective": lambda: tct.selective(net, x, budget=1.0, workspace=False),
    "step": lambda: tct.step(tc.plan(traced.graph, "recompute_all"), traced)(x),
    "trace": lambda: tct.trace(net, x, workspace=False),
}
for group in sorted(set(versions.NEEDED.values())):
    versions.attribute_at = lambda path: None if versions.NEEDED[path] == group else real(path)
    for name in [name for name in sys.modules if name.startswith("tinyckpt.interop.torch")]:
        if name != versions.__name__:
            del sys.modules[name]
    tct = import_module("tinyckpt.interop.torch")
    worked, traced = [], None if "trace" in group else tct.trace(net, x, workspace=False)
    for entry, call in calls.items():
        if entry in group:
            try:
                call() if traced or entry not in ("step", "min_cut_schedules") else (
                    getattr(tct, entry)(None, None))
            except tc.BackendError as error:
                assert str(error).startswith(entry + " needs torch."), error
            else:
                raise AssertionError((entry, group))
        elif traced or entry not in ("step", "min_cut_schedules"):
            made = call()
            worked.append(entry)
            assert entry != "compare" or not made.rows[0].failed, made
            assert entry != "min_cut_schedules" or len(made) == 1
    print(*group, "|", *worked)
"""


def test_every_entry_point_is_called_without_missing_attributes() -> None:
    assert set(re.findall(r'^    "(\w+)": ', WITHOUT, re.MULTILINE)) == set(versions.EACH)


@pytest.mark.nightly
def test_entry_points_without_missing_attributes_work() -> None:
    lines = ran(WITHOUT).splitlines()
    assert len(lines) == len(set(NEEDED.values()))
    worked = set(versions.EACH) - {"compare", "trace", "step", "min_cut_schedules"}
    assert f"compare trace | {' '.join(sorted(worked))}" in lines
