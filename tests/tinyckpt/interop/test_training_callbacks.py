"""Advice in the loops of transformers, Lightning and accelerate: ten steps, bitwise as without."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

for each in ("torch", "transformers", "accelerate", "pytorch_lightning"):
    require(each)

import torch

import tinyckpt as tc
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import training_callbacks
from tinyckpt.interop.torch.candidate_modules import is_wrapped

pytestmark = pytest.mark.filterwarnings("ignore")  # about what these frameworks do themselves
ROUNDING = 32  # bytes: the number 1 with which backward begins, and those that scale the loss


@pytest.fixture(scope="module")
def loops() -> Any:
    """Return the module with the loops; the frameworks are imported here."""
    from tests import torch_training_loops

    return torch_training_loops


def check_bits(plain: Any, advised: Any, advice: tct.Advice, place: int, steps: int) -> None:
    """Check losses and weights to the bit, the wrapped modules, and the peak of one step."""
    (seen, model), (own, own_model) = plain, advised
    assert [loss for _, loss in own] == [loss for _, loss in seen]
    assert len({loss for _, loss in own}) == len(own) == steps
    weights, own_weights = model.state_dict(), own_model.state_dict()
    assert all(torch.equal(weights[name], own_weights[name]) for name in weights)
    assert 0 < len(advice.modules) < len(advice.candidates)
    assert sum(map(is_wrapped, own_model.modules())) == len(advice.modules)
    assert "forward" not in vars(own_model)
    assert abs(seen[place][0] - advice.plain_peak) <= ROUNDING
    assert abs(own[place][0] - advice.peak) <= ROUNDING
    assert len({peak for peak, _ in own[1:]}) == 1


@pytest.mark.long
def test_trainer_trains_to_the_bits_within_the_predicted_peak(loops: Any, tmp_path: Path) -> None:
    callback = tct.trainer_callback("80 %")
    assert callback.advice is None
    plain, advised = (loops.by_trainer(tmp_path, own) for own in ([], [callback]))
    check_bits(plain, advised, callback.advice, 1, loops.STEPS)
    again = pickle.loads(pickle.dumps(callback))
    assert (again.budget, again.advice) == ("80 %", None)


@pytest.mark.long
def test_lightning_trains_to_the_bits_within_the_predicted_peak(loops: Any) -> None:
    callback = tct.lightning_callback("80 %")
    plain, advised = loops.by_lightning([]), loops.by_lightning([callback])
    # In later steps Lightning frees the gradients of the last one only after forward.
    check_bits(plain, advised, callback.advice, 0, loops.STEPS)
    assert "training_step" not in vars(advised[1])
    assert all(name.startswith("net.blocks.") for name in callback.advice.modules)


@pytest.mark.nightly
def test_loop_of_accelerate_trains_to_the_bits_within_the_predicted_peak(loops: Any) -> None:
    plain, advised = loops.by_accelerate(None), loops.by_accelerate("80 %")
    assert advised[2] is not None
    check_bits(plain[:2], advised[:2], advised[2], 1, loops.STEPS)


def test_manual_optimisation_of_lightning_is_refused(loops: Any) -> None:
    model = loops.Lit()
    model.automatic_optimization = False
    with pytest.raises(tc.GraphError, match="automatic_optimization is False"):
        tct.lightning_callback("80 %").on_train_start(None, model)


@pytest.mark.nightly
def test_budget_that_nothing_meets_ends_training_and_leaves_the_model(loops: Any) -> None:
    callback = tct.trainer_callback("1 KiB", workspace=False)
    model = loops.decoder()
    callback.on_train_begin(None, None, None, model=model)
    batch = {name: value[None] for name, value in loops.batches(1)[0].items()}
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
