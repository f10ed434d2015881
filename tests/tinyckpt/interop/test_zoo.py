"""Model zoo, external and own: training equals plain PyTorch's, or the model is refused.

The expected outcome of each model is recorded in ``benchmarks/zoo``: a model that begins to work,
or whose refusal message changes, fails like one that ceases to.
"""

import re
from typing import Any

import pytest

from tests.conftest import PROFILE, require

for each in ("torch", "torchvision", "transformers"):
    require(each)

# One of each kind in every run; the others with make nightly.
ALWAYS = {
    "tied and parametrised", "module under two names", "cache that blocks fill",
    "buffer moved in place", "batch and instance norm", "LSTM and GRU", "custom function",
    "experts by route", "autocast", "checkpoint inside", "generator of its own",
    "ResNet-18", "RegNet", "ViT", "Swin",
    "Llama", "BERT", "ModernBERT", "T5", "Mixtral",
}  # fmt: skip
if PROFILE == "deep":  # all of them, large ones too
    from benchmarks.zoo import MODELS

    ZOO = [*MODELS]
else:  # transformers and torchvision are imported by the tests that need them
    ZOO = sorted(ALWAYS)
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:.*its forward changes")]


@pytest.fixture(scope="module")
def zoo() -> Any:
    """Return the package of the zoo; torchvision and transformers are imported here."""
    import benchmarks.zoo.trials

    return benchmarks.zoo


def test_zoo_has_twenty_own_and_twenty_external_models(zoo: Any) -> None:
    names = {name for name, entry in zoo.MODELS.items() if not entry.large}
    ours = names & set(zoo.GROUPS["Ours"])
    assert min(len(ours), len(names) - len(ours)) >= 20
    assert len(ALWAYS & names) == 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_trains_as_advised(name: str, zoo: Any) -> None:
    entry = zoo.MODELS[name]
    outcome = zoo.trials.advised(entry, halved=PROFILE == "deep")
    check_refusal(entry.advised, outcome)
    check_steps(outcome, 0, entry.peak)
    if not entry.advised:
        assert bool(outcome.size) == entry.wraps, f"{outcome.size} modules may be wrapped"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_trains_as_planned(name: str, zoo: Any) -> None:
    entry = zoo.MODELS[name]
    outcome = zoo.trials.planned(entry)
    check_refusal(entry.traced, outcome)
    check_steps(outcome, entry.apart, entry.planned)


# Compiled, too: a few of each kind.
COMPILED = ["tied", "module under two names", "batch and instance norm", "RegNet", "Llama"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMPILED)
def test_zoo_model_trains_compiled(name: str, zoo: Any) -> None:
    check_steps(zoo.trials.compiled(zoo.MODELS[name]), 0, 0)


def check_refusal(expected: str, outcome: Any) -> None:
    """Assert that a model was refused with these words, if there are any, and was left alone."""
    assert outcome.changed == []
    assert bool(outcome.refused) == bool(expected), outcome.refused or f"not refused: {expected}"
    assert re.search(expected, outcome.refused), outcome.refused


def check_steps(outcome: Any, apart: float, missed: int) -> None:
    """Assert that steps differ from plain PyTorch, and peaks from what was said, as is known."""
    for step in outcome.steps:
        assert step.apart <= apart, f"{step.what}: {step.where} is {step.apart:.3g} apart"
        assert step.miss <= missed, step
    if outcome.steps:
        assert bool(apart) == any(step.apart for step in outcome.steps), "the bits are equal now"
