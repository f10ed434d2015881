"""Training steps: the optimisers' formulas; consumed gradients, accumulation, carried values."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tinyckpt.base.tree import leaves, leaves_with_paths, map_leaves

R = np.random.default_rng(5)
PARAMETERS = {"w": R.normal(size=(4, 3)), "b": [R.normal(size=3)]}
X, Y = R.normal(size=(8, 4)), R.normal(size=(8, 3))


def loss(params: Any, x: Any, y: Any) -> Any:
    return tc.mean((tc.tanh(x @ params["w"] + params["b"][0]) - y) ** 2)


def arrays(tree: Any) -> Any:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves(tree)])


def trained(step: tc.TrainStep, steps: int, *batch: Any, parameters: Any = PARAMETERS) -> Any:
    state = step.init(parameters)
    for _ in range(steps):
        state, _ = step(state, *(batch or (X, Y)))
    return state


def reference(name: str, rate: Any, steps: int) -> Any:
    """Return the parameters after some steps, by the papers' formulas."""
    p = arrays(PARAMETERS)
    gradient = tc.grad(loss)
    first, second = np.zeros_like(p), np.zeros_like(p)
    for number in range(steps):
        tree = {"w": p[:12].reshape(4, 3), "b": [p[12:]]}
        g = arrays(gradient(tree, X, Y))
        lr = rate(number) if callable(rate) else rate
        if name == "sgd":
            p = p - lr * g
        elif name == "momentum":
            first = 0.9 * first + g
            p = p - lr * first
        else:
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g * g
            m = first / (1 - 0.9 ** (number + 1))
            v = second / (1 - 0.999 ** (number + 1))
            decay = 0.01 if name == "adamw" else 0.0
            p = p - lr * m / (np.sqrt(v) + 1e-8) - lr * decay * p
    return p


OPTIMIZERS = {"sgd": tc.sgd, "momentum": tc.momentum, "adam": tc.adam, "adamw": tc.adamw}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_equals_its_paper(name: str) -> None:
    state = trained(tc.train_step(loss, OPTIMIZERS[name](0.05)), 7)
    np.testing.assert_allclose(
        arrays(state["parameters"]), reference(name, 0.05, 7), rtol=1e-12, atol=1e-14
    )
    assert int(state["step"]) == 7


def test_a_rate_may_be_a_function_of_the_step() -> None:
    schedule = tc.cosine_rate(0.1, steps=6, warmup=2)
    rate = tc.jit(schedule)
    state = trained(tc.train_step(loss, tc.sgd(schedule)), 7)
    expected = reference("sgd", lambda number: float(rate(np.int64(number))), 7)
    np.testing.assert_allclose(arrays(state["parameters"]), expected, rtol=1e-12)
    with pytest.raises(tc.OptionError, match="warmup=6: it must be less than the steps, 6"):
        tc.linear_rate(0.1, steps=6, warmup=6)


@pytest.mark.parametrize("rate", [tc.cosine_rate, tc.linear_rate])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peak": lambda step: 0.1}, "peak=.*it must be a number of 0 or more"),
        (
            {"peak": 0.1, "floor": tc.linear_rate(0.1, 2)},
            "floor=.*it must be a number of 0 or more",
        ),
        ({"peak": 0.1, "floor": 0.2}, "floor=0.2, peak=0.1: the peak is finite, the floor at most"),
        ({"peak": np.inf}, "peak=inf: the peak is finite"),
    ],
)
def test_illegal_rate_is_refused(rate: Any, options: Any, message: str) -> None:
    with pytest.raises(tc.OptionError, match=message):
        rate(steps=6, **options)
    with pytest.raises(tc.OptionError, match=r"momentum=.*it must be a number of 0 or more"):
        tc.momentum(0.1, lambda step: 0.9)


@pytest.mark.parametrize("policy", ["store_all", "recompute_all", "sqrt_n", "greedy", "dtr"])
@pytest.mark.parametrize("gradients", ["consumed", "held"])
def test_policy_and_gradient_mode_change_no_bit(policy: str, gradients: Any) -> None:
    expected = trained(tc.train_step(loss, tc.adamw(0.05)), 3)
    state = trained(tc.train_step(loss, tc.adamw(0.05), policy, gradients=gradients), 3)
    assert (arrays(state) == arrays(expected)).all()


def test_step_runs_on_another_array_library() -> None:
    step = tc.train_step(loss, tc.clipped(tc.adamw(0.05), 0.1), backend=strict.BACKEND)
    state = step.init(PARAMETERS)
    state, value = step(state, X, Y)
    expected = trained(tc.train_step(loss, tc.clipped(tc.adamw(0.05), 0.1)), 1)
    own = map_leaves(strict.BACKEND.to_host, state["parameters"])
    np.testing.assert_array_equal(arrays(own), arrays(expected["parameters"]))
    assert float(strict.BACKEND.to_host(value)) > 0


def test_state_is_updated_in_place() -> None:
    step = tc.train_step(loss, tc.adam(0.05))
    state = step.init(PARAMETERS)
    before = [id(leaf) for leaf in leaves(state)]
    numbers = arrays(state)
    after, _ = step(state, X, Y)
    assert [id(leaf) for leaf in leaves(after)] == before
    assert (arrays(after) != numbers).all()
    assert arrays(PARAMETERS)[0] == numbers[0]  # init copied them


def test_parameters_of_any_memory_layout_are_accepted() -> None:
    optimizer = tc.with_master_weights(tc.adam(0.05), "float64")
    step = tc.train_step(loss, optimizer, micro_batches=2)
    turned = map_leaves(lambda p: np.asfortranarray(p)[::-1], PARAMETERS)
    like = map_leaves(np.ascontiguousarray, turned)
    found, expected = (trained(step, 2, parameters=given) for given in (turned, like))
    np.testing.assert_array_equal(arrays(found), arrays(expected))


def test_micro_batches_equal_the_whole_batch() -> None:
    whole = trained(tc.train_step(loss, tc.adam(0.05)), 3)
    for count in (2, 4, 8):
        step = tc.train_step(loss, tc.adam(0.05), micro_batches=count)
        state = trained(step, 3)
        np.testing.assert_allclose(
            arrays(state["parameters"]), arrays(whole["parameters"]), rtol=1e-12
        )
    _, value = step(step.init(PARAMETERS), X, Y)
    np.testing.assert_allclose(value, tc.value_and_grad(loss)(PARAMETERS, X, Y)[0], rtol=1e-14)
    with pytest.raises(tc.GraphError, match="a batch of 8 cannot be split into 3 micro-batches"):
        trained(tc.train_step(loss, tc.adam(0.05), micro_batches=3), 1)


def test_clipping_bounds_the_global_norm() -> None:
    gradient = arrays(tc.grad(loss)(PARAMETERS, X, Y))
    norm = float(np.linalg.norm(gradient))
    for most in (0.1 * norm, 10 * norm):
        state = trained(tc.train_step(loss, tc.clipped(tc.sgd(1.0), most)), 1)
        moved = arrays(PARAMETERS) - arrays(state["parameters"])
        np.testing.assert_allclose(moved, gradient * min(1.0, most / norm), rtol=1e-10)
    with pytest.raises(tc.OptionError, match="norm=0"):
        tc.clipped(tc.sgd(1.0), 0)


def test_carried_values_change_without_a_gradient() -> None:
    def centred(params: Any, running: Any, x: Any) -> Any:
        mean = tc.mean(x, 0)
        moved = {"mean": running["mean"] * 0.9 + mean * 0.1}
        return tc.mean((x - mean) @ params["w"]) + tc.sum(params["w"] ** 2), moved, mean

    step = tc.train_step(centred, tc.sgd(0.1), "recompute_all", carry=True)
    state = step.init({"w": np.ones((4, 3))}, {"mean": np.zeros(4)})
    for _ in range(2):
        state, (_, mean) = step(state, X)
    np.testing.assert_allclose(state["carried"]["mean"], X.mean(0) * (0.1 + 0.09), rtol=1e-12)
    np.testing.assert_allclose(mean, X.mean(0))
    with pytest.raises(tc.GraphError, match="init takes carried values if and only if"):
        step.init({"w": np.ones(2)})


def test_carried_values_are_matched_by_key() -> None:
    def counting(params: Any, carried: Any, x: Any) -> Any:
        return tc.sum(params * x), {"v": carried["v"] * 2.0, "u": carried["u"] * 3.0}

    step = tc.train_step(counting, tc.sgd(0.1), carry=True, micro_batches=2)
    state = step.init(np.ones(2), {"u": np.ones(()), "v": np.ones(())})
    state, _ = step(state, np.ones((2, 2)))
    assert {key: float(array) for key, array in state["carried"].items()} == {"u": 9.0, "v": 4.0}

    def other(params: Any, carried: Any, x: Any) -> Any:
        return tc.sum(params * x), {"u": carried["u"], "w": carried["v"]}

    for scale in (None, tc.LossScale()):
        step = tc.train_step(other, tc.sgd(0.1), carry=True, loss_scale=scale)
        with pytest.raises(tc.GraphError, match=r"carried: expected the keys \['u', 'v'\], got"):
            step(step.init(np.ones(2), {"u": np.ones(()), "v": np.ones(())}), np.ones(2))


def reversed_keys(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: reversed_keys(tree[key]) for key in reversed(tree)}


@pytest.mark.parametrize("name", ["parameters", "optimizer", None])
def test_key_order_of_a_state_does_not_matter(name: str | None) -> None:
    def squares(params: Any, x: Any) -> Any:
        return tc.half_squared_norm(params["a"] - x) + tc.half_squared_norm(params["b"] + 3 * x)

    optimizer = tc.with_master_weights(tc.clipped(tc.adam(0.1), 1.0), "float64")
    step = tc.train_step(squares, optimizer, loss_scale=tc.LossScale(), micro_batches=2)
    states = [step.init({"a": np.ones(2), "b": np.zeros(2)}) for _ in range(2)]
    for _ in range(3):
        states = [step(state, np.ones((2, 2)))[0] for state in states]
        if name is None:
            states[1] = reversed_keys(states[1])
        else:
            states[1][name] = reversed_keys(states[1][name])
    one, other = states[0], reversed_keys(states[1]) if name is None else states[1]
    assert sorted(map(str, leaves_with_paths(one, ""))) == sorted(
        map(str, leaves_with_paths(other, ""))
    )


@pytest.mark.parametrize(
    "options", [{"gradients": "dropped"}, {"micro_batches": 0}, {"loss_scale": 2.0**15}]
)
def test_illegal_options_are_refused(options: Any) -> None:
    with pytest.raises(tc.OptionError):
        tc.train_step(loss, tc.sgd(0.1), **options)


@pytest.mark.parametrize("scale", [None, tc.LossScale()])
@pytest.mark.parametrize("optimizer", [tc.adam(0.1), tc.clipped(tc.sgd(0.1), 1.0)])
def test_loss_without_parameters_takes_steps(optimizer: tc.Optimizer, scale: Any) -> None:
    step = tc.train_step(lambda params, x: tc.sum(x), optimizer, loss_scale=scale)
    state, value = step(step.init([]), np.ones(3, np.float32))
    assert (state["parameters"], int(state["step"]), float(value)) == ([], 1, 3.0)


def test_state_that_cannot_be_updated_is_refused() -> None:
    step = tc.train_step(loss, tc.sgd(0.1))
    state = step.init(PARAMETERS)
    with pytest.raises(tc.GraphError, match=r"expected what step.init\(parameters\) returned"):
        step(PARAMETERS, X, Y)
    state["parameters"]["w"].flags.writeable = False
    with pytest.raises(tc.GraphError, match=r"\['w'\]: the array is read-only"):
        step(state, X, Y)
    state = step.init(PARAMETERS)
    state["parameters"]["b"][0] = state["parameters"]["w"][0]
    with pytest.raises(tc.GraphError, match="share memory; each must have its own"):
        step(state, X, Y)
    with pytest.raises(tc.GraphError, match="parameters: expected a floating-point array"):
        step.init(np.arange(3))


OTHER_STEPS: dict[str, Any] = {
    "sgd": lambda: tc.train_step(loss, tc.sgd(0.1)),
    "momentum": lambda: tc.train_step(loss, tc.momentum(0.1)),
    "adam": lambda: tc.train_step(loss, tc.adam(0.1)),
    "master": lambda: tc.train_step(loss, tc.with_master_weights(tc.adam(0.1), "float64")),
}


@pytest.mark.parametrize("name", OTHER_STEPS)
def test_state_of_another_optimizer_is_refused(name: str) -> None:
    step = OTHER_STEPS[name]()
    for other, make in OTHER_STEPS.items():
        state = make().init(PARAMETERS)
        if other == name:
            step(state, X, Y)
            continue
        for use in (step, step.schedule):
            with pytest.raises(
                tc.GraphError, match=r"state\['optimizer'\].*another optimizer than"
            ):
                use(state, X, Y)


@pytest.mark.parametrize(
    ("options", "entry"),
    [
        ({"micro_batches": 2}, "accumulated"),
        ({"loss_scale": tc.LossScale()}, "good_steps"),
        ({"carry": True}, "carried"),
    ],
)
def test_state_of_a_step_with_other_options_is_refused(options: Any, entry: str) -> None:
    state = tc.train_step(loss, tc.sgd(0.1)).init(PARAMETERS)
    step = tc.train_step(loss, tc.sgd(0.1), **options)
    for use in (step, step.schedule):
        with pytest.raises(
            tc.GraphError, match=f"of a step with these options; it has no '{entry}"
        ):
            use(state, X, Y)


def test_update_that_returns_no_pair_is_refused() -> None:
    silent = tc.Optimizer("silent", lambda parameters: (), lambda *_: None)  # type: ignore[arg-type,return-value]
    step = tc.train_step(loss, silent)
    with pytest.raises(
        tc.GraphError, match=r"silent: update must return \(parameters, state\), not"
    ):
        step(step.init(PARAMETERS), X, Y)


@pytest.mark.parametrize("backend", ["numpy", tc.on_disk()])
def test_batch_aliasing_the_state_is_refused(backend: Any) -> None:
    def near(params: Any, old: Any, seed: Any = 0) -> Any:
        return tc.half_squared_norm(tc.sin(params["w"] * old[::-1]))

    step = tc.train_step(near, tc.momentum(0.1), backend=backend)
    state = step.init({"w": np.arange(1.0, 5.0)})
    own = state["parameters"]["w"]
    for old in (own, own[::-1], own[2:3], own.reshape(2, 2)):
        with pytest.raises(tc.GraphError, match=r"the batch\[0\] shares memory with state\['par"):
            step(state, old)
    with pytest.raises(tc.GraphError, match=r"\['seed'\] shares memory with state\['step'\]"):
        step(state, own.copy(), seed=state["step"])
    assert own.tolist() == [1, 2, 3, 4]
    # Beside it in the same memory is not in it.
    joint = np.arange(12.0)
    state["parameters"]["w"], state["optimizer"]["w"] = joint[:4], joint[8:]
    step(state, joint[4:8])
    step(state, joint[4:8][::-1])
    with pytest.raises(tc.GraphError, match="shares memory"):
        step(state, joint[2::2][:4])


def test_first_nan_names_its_operator() -> None:
    def logarithm(params: Any, x: Any) -> Any:
        with tc.scope("layer1"):
            return tc.sum(tc.log(params["w"] * x))

    step = tc.train_step(logarithm, tc.sgd(0.1), check_nan=True)
    state = step.init({"w": np.ones(2)})
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(tc.BackendError, match="log_1, a log in layer1, made the first NaN"),
    ):
        step(state, np.array([1.0, -1.0]))
    assert state["parameters"]["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("count", [0, 10**30, 1.5])
def test_number_of_micro_batches_is_checked(count: Any) -> None:
    with pytest.raises(tc.OptionError, match="it must be an integer from 1 to 1,000,000"):
        tc.train_step(tc.sum, tc.sgd(0.1), micro_batches=count)
