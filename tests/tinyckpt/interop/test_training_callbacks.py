"""Advice in the loops of transformers, Lightning and accelerate: ten steps, bitwise as without."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

for each in ("torch", "transformers", "accelerate", "pytorch_lightning"):
    require(each)

import torch
from torch import Tensor, nn

import tinyckpt as tc
from benchmarks.zoo import operators  # noqa: F401  (before transformers imports torchvision)
from tests.torch_models import GPT
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import training_callbacks
from tinyckpt.interop.torch.candidate_modules import is_wrapped

# isort: split
import accelerate
import pytorch_lightning
import transformers

pytestmark = pytest.mark.filterwarnings("ignore")  # about what these frameworks do themselves
STEPS, BATCH, LENGTH, VOCABULARY = 10, 4, 64, 96
ROUNDING = 32  # bytes: the number 1 with which backward begins, and those that scale the loss


def decoder() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=96, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False, attention_dropout=0.1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def batches(count: int) -> list[dict[str, Tensor]]:
    """Return sequences, each as a dict for one."""
    draw = torch.Generator().manual_seed(1)
    rows = torch.randint(VOCABULARY, (count, LENGTH), generator=draw)
    return [{"input_ids": row, "labels": row} for row in rows]


class MeasuredTrainer(transformers.Trainer):  # type: ignore[misc]
    """A Trainer that notes the peak and the loss of each step."""

    def training_step(self, *args: Any, **named: Any) -> Any:
        peak, loss = tct.allocator_peak(
            lambda: super(MeasuredTrainer, self).training_step(*args, **named)
        )
        vars(self).setdefault("seen", []).append((peak, float(loss)))
        return loss


def by_trainer(folder: Path, callbacks: list[Any], **settings: Any) -> tuple[Any, nn.Module]:
    """Train by transformers' Trainer; return peak and loss of every step, and the model."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, seed=0,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
        **settings,
    )  # fmt: skip
    trainer = MeasuredTrainer(
        decoder(), arguments, train_dataset=batches(STEPS * BATCH), callbacks=callbacks
    )
    trainer.train()
    return trainer.seen, trainer.model


def check_bits(plain: Any, advised: Any, advice: tct.Advice, place: int) -> None:
    """Check losses and weights to the bit, the wrapped modules, and the peak of one step."""
    (seen, model), (own, own_model) = plain, advised
    assert [loss for _, loss in own] == [loss for _, loss in seen]
    assert len({loss for _, loss in own}) == len(own) == STEPS
    weights, own_weights = model.state_dict(), own_model.state_dict()
    assert all(torch.equal(weights[name], own_weights[name]) for name in weights)
    assert 0 < len(advice.modules) < len(advice.candidates)
    assert sum(map(is_wrapped, own_model.modules())) == len(advice.modules)
    assert "forward" not in vars(own_model)
    assert abs(seen[place][0] - advice.plain_peak) <= ROUNDING
    assert abs(own[place][0] - advice.peak) <= ROUNDING
    assert len({peak for peak, _ in own[1:]}) == 1


@pytest.mark.long
def test_trainer_trains_to_the_bits_within_the_predicted_peak(tmp_path: Path) -> None:
    callback = tct.trainer_callback("80 %")
    assert callback.advice is None
    plain, advised = by_trainer(tmp_path, []), by_trainer(tmp_path, [callback])
    check_bits(plain, advised, callback.advice, place=1)
    again = pickle.loads(pickle.dumps(callback))
    assert (again.budget, again.advice) == ("80 %", None)


class Lit(pytorch_lightning.LightningModule):  # type: ignore[misc]
    """A language model with a training step that logs, and optimises with plain SGD."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.calls = GPT(4, 32, 4, LENGTH, rate=0.1, vocabulary=VOCABULARY), 0
        self.seen: list[tuple[int, float]] = []

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.net(batch["input_ids"], batch["labels"])

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self(batch)
        self.calls += 1
        self.log("loss", loss.detach())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def optimizer_step(self, *args: Any, **named: Any) -> None:
        peak, _ = tct.allocator_peak(lambda: super(Lit, self).optimizer_step(*args, **named))
        self.seen.append((peak, float(self.trainer.callback_metrics["loss"])))


def by_lightning(callbacks: list[Any], **settings: Any) -> tuple[Any, nn.Module]:
    """Train by Lightning's Trainer; return peak and loss of every step, and the model."""
    pytorch_lightning.seed_everything(0, verbose=False)
    model = Lit()
    trainer = pytorch_lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks, **settings,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(batches(STEPS * BATCH), batch_size=BATCH, shuffle=True)
    trainer.fit(model, loader)
    assert model.calls == STEPS
    return model.seen, model


@pytest.mark.long
def test_lightning_trains_to_the_bits_within_the_predicted_peak() -> None:
    callback = tct.lightning_callback("80 %")
    plain, advised = by_lightning([]), by_lightning([callback])
    # In later steps Lightning frees the gradients of the last one only after forward.
    check_bits(plain, advised, callback.advice, place=0)
    assert "training_step" not in vars(advised[1])
    assert all(name.startswith("net.blocks.") for name in callback.advice.modules)


def by_accelerate(budget: str | None) -> tuple[Any, nn.Module, tct.Advice | None]:
    """Train in a loop of accelerate's; return peak and loss of every step, model and advice."""
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(batches(STEPS * BATCH), batch_size=BATCH, shuffle=True)
    model = decoder()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader
    )
    advice, seen = None, []
    for batch in loader:
        if budget and advice is None:
            advice = tct.advise(model, **batch, budget=budget)
            advice.apply(model)

        def step(batch: dict[str, Tensor] = batch) -> Tensor:
            loss = model(**batch).loss
            accelerator.backward(loss)
            return loss.detach()

        peak, loss = tct.allocator_peak(step)
        optimizer.step()
        optimizer.zero_grad()
        seen.append((peak, float(loss)))
    return seen, model, advice


@pytest.mark.nightly
def test_loop_of_accelerate_trains_to_the_bits_within_the_predicted_peak() -> None:
    plain, advised = by_accelerate(None), by_accelerate("80 %")
    assert advised[2] is not None
    check_bits(plain[:2], advised[:2], advised[2], place=1)


def test_manual_optimisation_of_lightning_is_refused() -> None:
    model = Lit()
    model.automatic_optimization = False
    with pytest.raises(tc.GraphError, match="automatic_optimization is False"):
        tct.lightning_callback("80 %").on_train_start(None, model)


@pytest.mark.nightly
def test_budget_that_nothing_meets_ends_training_and_leaves_the_model() -> None:
    callback = tct.trainer_callback("1 KiB", workspace=False)
    model = decoder()
    callback.on_train_begin(None, None, None, model=model)
    batch = {name: value[None] for name, value in batches(1)[0].items()}
    with torch.no_grad():
        model(**batch)  # an evaluation is no training step
    with pytest.raises(tc.BudgetError, match="the smallest peak"):
        model(**batch)
    assert callback.advice is None
    assert not any(map(is_wrapped, model.modules()))
    assert "forward" not in vars(model)
    assert model(**batch).loss.requires_grad


def test_callback_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_callbacks, "find_spec", lambda name: None)
    with pytest.raises(tc.BackendError, match="needs transformers, which is not installed"):
        tct.trainer_callback("1 GiB")
    with pytest.raises(tc.BackendError, match="needs pytorch-lightning, which is not installed"):
        tct.lightning_callback("1 GiB")
