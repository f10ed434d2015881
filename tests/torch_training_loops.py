"""Loops of transformers, Lightning and accelerate that train small language models for ten steps.

A module of its own, which the tests of callbacks import when they run: these packages take many
seconds to import.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo import operators  # noqa: F401  (before transformers imports torchvision)
from tests.torch_models import GPT
from tinyckpt.interop import torch as tct

# isort: split
import accelerate
import pytorch_lightning
import transformers

STEPS, BATCH, LENGTH, VOCABULARY = 10, 4, 64, 96


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
