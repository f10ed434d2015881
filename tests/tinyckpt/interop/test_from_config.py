"""``tinyckpt torch --hf``: advice on a model of transformers from its config.json alone."""

import importlib
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.readme import ROOT, outputs

for each in ("torch", "transformers"):
    require(each)

import torch

import tinyckpt as tc
from tinyckpt.base.units import size_text
from tinyckpt.cli import main
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.from_config import MOST_LAYERS, model_of_config, on_meta

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 128,
}  # fmt: skip
T5 = {
    "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": SMALL | {"model_type": "llama", "num_key_value_heads": 2},
    "Qwen2ForCausalLM": SMALL | {"model_type": "qwen2", "num_key_value_heads": 2},
    "GPT2LMHeadModel": {"model_type": "gpt2", "vocab_size": 96, "n_embd": 32, "n_layer": 3,
                        "n_head": 4, "n_positions": 128},
    "BertForMaskedLM": SMALL | {"model_type": "bert"},
    "T5ForConditionalGeneration": T5 | {"model_type": "t5"},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def transformers() -> Any:
    """Return the package, imported when the first of the tests begins."""
    importlib.import_module("benchmarks.zoo.operators")  # where torchvision lacks its library
    return importlib.import_module("transformers")


def nightly(name: str) -> Any:
    """Return a case that CI does not run: the first one is of the same kind."""
    return pytest.param(name, marks=pytest.mark.nightly)


def written(path: Path, settings: Any) -> Path:
    """Write a configuration; return its path."""
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", *map(nightly, list(CONFIGS)[1:])])
def test_configuration_is_advised_on_as_its_model_is(
    name: str,
    dtype: str,
    transformers: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = CONFIGS[name] | {"architectures": [name], "torch_dtype": dtype}
    path = written(tmp_path / "config.json", settings)
    config = transformers.AutoConfig.from_pretrained(str(path))
    config.use_cache = False
    model = getattr(transformers, name)(config).to(getattr(torch, dtype)).train()
    words = torch.randint(1, 96, (2, 64))
    plain = tct.estimate(model, input_ids=words, labels=words, workspace=False)
    state = 2 * sum(p.nbytes for p in model.parameters())
    budget = plain.total + state - plain.peak // 8
    line = ["torch", "--hf", str(path), "--batch", "2x64", "--budget", str(budget)]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert f"{name} fits." in printed
    row = re.search(r"^gradients, activations, workspace +(.*?)  ", printed, re.MULTILINE)
    assert row is not None
    assert row[1] == size_text(plain.peak)
    assert f"Weights are in {dtype}, as the file says" in printed
    advice = tct.advise(
        model, input_ids=words, labels=words, budget=budget - plain.source_bytes - state,
        workspace=False,
    )  # fmt: skip
    assert advice.modules
    assert advice.source in printed


LLAMA = CONFIGS["LlamaForCausalLM"] | {"architectures": ["LlamaForCausalLM"]}
REFUSED: dict[str, tuple[Any, str]] = {
    "absent": (None, "No such file or directory; expected the config.json of a model"),
    "list": ([LLAMA], "has no model_type; expected the config.json of a model"),
    "no type": ({"hidden_size": 4}, "has no model_type; expected the config.json of a model"),
    "unknown": ({"model_type": "nonesuch"}, "transformers makes no model of it: ValueError"),
    "wrong value": (LLAMA | {"hidden_size": "wide"}, "transformers makes no model of it: "),
    "unequal heads": (LLAMA | {"num_attention_heads": 0}, "transformers makes no model of it: "),
    "images": ({"model_type": "vit", "architectures": ["ViTForImageClassification"]},
               "ViTForImageClassification has no loss of tokens and their labels"),
    "classes": (SMALL | {"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
                "BertForSequenceClassification has no loss of tokens and their labels"),
    "layers": (LLAMA | {"num_hidden_layers": 10**6}, f"expected 0 to {MOST_LAYERS:,}"),
    "negative": (LLAMA | {"num_hidden_layers": -1}, "num_hidden_layers is -1; expected 0 to"),
    "other code": (LLAMA | {"architectures": ["OwnForCausalLM"]}, "names OwnForCausalLM, which"),
    "no model": (LLAMA | {"architectures": ["set_seed"]}, "transformers makes no model of it: "),
    "long": (LLAMA | {"max_position_embeddings": 63}, "takes at most 63 tokens, the batch has 64"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, why = REFUSED[case]
    path = tmp_path / "config.json"
    if settings is not None:
        written(path, settings)
    with pytest.raises(SystemExit) as stopped:
        main(["torch", "--hf", str(path), "--batch", "2x64", "--budget", "1 GiB"])
    assert stopped.value.code == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "error:" in x]
    assert str(path) in line
    assert why in line


UNLIMITED: dict[str, dict[str, Any]] = {
    "Mamba2ForCausalLM": {"model_type": "mamba2", "hidden_size": 32, "num_heads": 8, "head_dim": 8,
                          "state_size": 4, "n_groups": 1, "num_hidden_layers": 1, "vocab_size": 64,
                          "time_step_limit": [0.0, {"__float__": "Infinity"}]},
    "XLNetLMHeadModel": {"model_type": "xlnet", "d_model": 32, "n_head": 2, "d_inner": 32,
                         "n_layer": 1, "vocab_size": 64},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", UNLIMITED)
def test_limits_that_transformers_writes_as_none_are_none(
    name: str, transformers: Any, tmp_path: Path
) -> None:
    path = written(tmp_path / "config.json", UNLIMITED[name] | {"architectures": [name]})
    model, batch = model_of_config(str(path), "2x64")
    assert type(model) is getattr(transformers, name)
    assert batch["input_ids"].shape == (2, 64)


@pytest.mark.parametrize(
    ("left_out", "said"), [("", "LlamaForCausalLM"), ("architectures", "llama")]
)
def test_class_that_transformers_cannot_import_is_named_with_the_cause(
    left_out: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError("requirements?") from RuntimeError("no operator nms")

    settings = {name: value for name, value in LLAMA.items() if name != left_out}
    path = written(tmp_path / "config.json", settings)
    monkeypatch.setitem(sys.modules, "transformers", Broken())
    with pytest.raises(tc.BackendError, match=f"cannot import {said}: RuntimeError: no o"):
        on_meta(str(path), settings)


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 100_000, b"", b'{"model_type": 1}'])
def test_damaged_files_are_refused(
    text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(SystemExit) as stopped:
        main(["torch", "--hf", str(path), "--batch", "2x64", "--budget", "1 GiB"])
    assert stopped.value.code == 2
    assert "expected the config.json of a model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "batch", ["2", "2x", "x64", "0x64", "2x-1", "2 x 64", "2x64x3", "9999999999x1"]
)
def test_other_batches_are_refused(
    batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "config.json", LLAMA)
    with pytest.raises(SystemExit) as stopped:
        main(["torch", "--hf", str(path), f"--batch={batch}", "--budget", "1 GiB"])
    assert stopped.value.code == 2
    assert "expected sequences and tokens each, such as 1x2048" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    ["", "model.py:make --hf c.json --batch 1x2", "--hf c.json", "model.py:make --batch 1x2"],
)
def test_one_of_file_and_configuration_is_expected(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["torch", *line.split(), "--budget", "1 GiB"])
    assert stopped.value.code == 2
    assert "expected FILE.py:FUNCTION, or --hf CONFIG.json and --batch" in capsys.readouterr().err


TEXT = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
GUIDE = {command: lines for command, lines in outputs(TEXT).items() if "--hf" in command}


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("command", GUIDE)
def test_commands_of_the_guide_print_their_output(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = GUIDE[command]
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(shown) > 10
    assert [line for line in shown if line not in printed] == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_refused_without_reading_them(tmp_path: Path) -> None:
    pipe, endless = tmp_path / "pipe.json", tmp_path / "endless.json"
    os.mkfifo(pipe)  # nobody writes to it: reading would block
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless):
        with pytest.raises(tc.GraphError, match="is not a regular file; expected"):
            model_of_config(str(path), "2x64")
