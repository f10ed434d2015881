"""Model zoo, external and own: training equals plain PyTorch's, or the model is refused.

The expected outcome of each model is recorded in ``benchmarks/zoo``: a model that begins to work,
or whose refusal message changes, fails like one that ceases to.
"""

import re

import pytest

from tests.conftest import PROFILE, require

for each in ("torch", "torchvision", "transformers"):
    require(each)

from benchmarks.zoo import GROUPS, MODELS
from benchmarks.zoo.trials import Outcome, advised, compiled, planned

# With make test-deep, large ones too.
NAMES = [name for name, entry in MODELS.items() if not entry.large or PROFILE == "deep"]
# One of each kind in every run; the others with make nightly.
ALWAYS = {
    "tied and parametrised", "module under two names", "cache that blocks fill",
    "buffer moved in place", "batch and instance norm", "LSTM and GRU", "custom function",
    "experts by route", "autocast", "checkpoint inside", "generator of its own",
    "ResNet-18", "RegNet", "ViT", "Swin",
    "Llama", "BERT", "ModernBERT", "T5", "Mixtral",
}  # fmt: skip
ZOO = [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.nightly) for name in NAMES]
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:.*its forward changes")]


def test_zoo_has_twenty_own_and_twenty_external_models() -> None:
    ours = set(NAMES) & set(GROUPS["Ours"])
    assert min(len(ours), len(NAMES) - len(ours)) >= 20
    assert len(ALWAYS & set(NAMES)) == 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_trains_as_advised(name: str) -> None:
    entry = MODELS[name]
    outcome = advised(entry, halved=PROFILE == "deep")
    check_refusal(entry.advised, outcome)
    check_steps(outcome, 0, entry.peak)
    if not entry.advised:
        assert bool(outcome.size) == entry.wraps, f"{outcome.size} modules may be wrapped"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_trains_as_planned(name: str) -> None:
    entry = MODELS[name]
    outcome = planned(entry)
    check_refusal(entry.traced, outcome)
    check_steps(outcome, entry.apart, entry.planned)


# Compiled, too: a few of each kind.
COMPILED = ["tied", "module under two names", "batch and instance norm", "RegNet", "Llama"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMPILED)
def test_zoo_model_trains_compiled(name: str) -> None:
    check_steps(compiled(MODELS[name]), 0, 0)


def check_refusal(expected: str, outcome: Outcome) -> None:
    """Assert that a model was refused with these words, if there are any, and was left alone."""
    assert outcome.changed == []
    assert bool(outcome.refused) == bool(expected), outcome.refused or f"not refused: {expected}"
    assert re.search(expected, outcome.refused), outcome.refused


def check_steps(outcome: Outcome, apart: float, missed: int) -> None:
    """Assert that steps differ from plain PyTorch, and peaks from what was said, as is known."""
    for step in outcome.steps:
        assert step.apart <= apart, f"{step.what}: {step.where} is {step.apart:.3g} apart"
        assert step.miss <= missed, step
    if outcome.steps:
        assert bool(apart) == any(step.apart for step in outcome.steps), "the bits are equal now"
