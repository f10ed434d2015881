"""Part 1 is solved when these tests pass."""

import numpy as np
import pytest
from example_losses import chain, gated, mlp
from part_1 import (
    KERNELS,
    RULES,
    Graph,
    Operator,
    backward,
    differentiate,
    half_squared_norm,
    needed,
    tanh,
)


def evaluate(graph, arrays):
    """Evaluate every operator once, and return the results."""
    given = [data for data in graph.sources if data not in graph.constants]
    values = dict(zip(given, arrays, strict=True)) | graph.constants
    for operator in graph.operators:
        values[operator.output] = KERNELS[operator.kind](*(values[x] for x in operator.inputs))
    return [values[data] for data in graph.results]


def kinds(graph, start=0):
    """Return the operators' kinds from one on, as text: "matmul tanh"."""
    return " ".join(operator.kind for operator in graph.operators[start:])


def check_gradient(loss, shapes, *inputs):
    """Compare the gradient with the change of the loss along a random direction."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=shape) / 2 for shape in shapes]
    along = [random.normal(size=shape) for shape in shapes]
    graph = Graph()
    parameters, data = ([graph.source() for _ in arrays] for arrays in (weights, inputs))
    value = loss(parameters, *data)
    graph.results = [value.id, *(var.id for var in backward(graph, value, parameters))]
    _, *gradient = evaluate(graph, [*weights, *inputs])
    assert [array.shape for array in gradient] == shapes
    slope = sum((g * d).sum() for g, d in zip(gradient, along, strict=True))
    above, below = (
        evaluate(graph, [*(w + s * d for w, d in zip(weights, along, strict=True)), *inputs])[0]
        for s in (1e-6, -1e-6)
    )
    expected = (above - below) / 2e-6
    assert np.isclose(slope, expected, rtol=1e-6), f"slope {slope}; expected {expected}"


def test_1_1_apply_appends_an_operator_and_returns_its_output():
    graph = Graph()
    w, x = graph.source(), graph.source()
    y = x @ w
    assert graph.operators == [Operator("matmul", (x.id, w.id), y.id)]
    z = tanh(y)
    assert graph.operators[1:] == [Operator("tanh", (y.id,), z.id)]
    assert (w.id, x.id, y.id, z.id) == (0, 1, 2, 3)
    assert z.graph is graph


def test_1_1_sources_and_outputs_have_different_ids_in_any_order():
    graph = Graph()
    x = graph.source()
    y = tanh(x)
    late = graph.source()
    assert (y + late).id == 3
    assert graph.sources == [0, 2]


def test_1_2_rules_of_multiply_add_one_product_each():
    graph = Graph()
    x, y, g = graph.source(), graph.source(), graph.source()
    out = x * y
    for rule, other in zip(RULES["multiply"], (y, x), strict=True):
        rule(g, out, x, y)
        assert kinds(graph, -1) == "multiply"
        assert set(graph.operators[-1].inputs) == {g.id, other.id}
    assert len(graph.operators) == 3


def test_1_2_rules_of_matmul_add_one_transposed_product_each():
    graph = Graph()
    x, y, g = graph.source(), graph.source(), graph.source()
    out = x @ y
    cotangents = [rule(g, out, x, y) for rule in RULES["matmul"]]
    assert kinds(graph) == "matmul matmul_vjp_x matmul_vjp_y"
    graph.results = [cotangent.id for cotangent in cotangents]
    of_x, of_y = evaluate(graph, [np.ones((5, 2)), np.ones((2, 3)), np.ones((5, 3))])
    assert of_x.shape == (5, 2)
    assert of_y.shape == (2, 3)
    assert (of_x == 3).all(), f"cotangent of x:\n{of_x}"
    assert (of_y == 5).all(), f"cotangent of y:\n{of_y}"


def test_1_3_backward_adds_operators_and_a_seed_of_1():
    graph = Graph()
    w, x = graph.source(), graph.source()
    (gradient,) = backward(graph, half_squared_norm(tanh(x @ w)), [w])
    assert kinds(graph).startswith("matmul tanh half_squared_norm ")
    # x is no parameter, so nothing computes its cotangent.
    assert kinds(graph, 3) == "half_squared_norm_vjp tanh_vjp matmul_vjp_y"
    assert gradient.id == graph.operators[-1].output
    (seed,) = graph.constants.values()
    assert seed == 1.0


def test_1_3_backward_adds_up_contributions_of_a_value_read_twice():
    graph = Graph()
    x = graph.source()
    (gradient,) = backward(graph, half_squared_norm(x * x), [x])
    assert kinds(graph, 2) == "half_squared_norm_vjp multiply multiply add"
    *_, earlier, later, total = graph.operators
    assert total.inputs == (earlier.output, later.output)
    graph.results = [gradient.id]
    assert evaluate(graph, [np.array([1.0, 2.0, 3.0])])[0].tolist() == [2.0, 16.0, 54.0]


def test_1_3_operators_that_the_loss_does_not_depend_on_get_no_cotangent():
    graph = Graph()
    x = graph.source()
    loss = half_squared_norm(x)
    tanh(x)
    backward(graph, loss, [x])
    assert kinds(graph) == "half_squared_norm tanh half_squared_norm_vjp"


def test_1_3_parameter_that_the_loss_does_not_depend_on_is_refused():
    graph = Graph()
    x, w = graph.source(), graph.source()
    tanh(w)
    with pytest.raises(ValueError, match="1"):
        backward(graph, half_squared_norm(x), [x, w])


def test_1_3_gradients_agree_with_finite_differences():
    x = np.random.default_rng(1).normal(size=(4, 3))
    check_gradient(mlp, [(3, 5), (5, 2)], x)
    check_gradient(gated, [(3, 3), (3, 3)], x)


def test_1_4_needed_goes_back_to_resident_values():
    graph = Graph()
    x = graph.source()
    a = tanh(x)
    b = tanh(a)
    c = tanh(b)
    d = a + b
    assert needed(graph, [c.id], [x.id]) == [0, 1, 2]
    assert needed(graph, [c.id], [x.id, b.id]) == [2]
    assert needed(graph, [d.id], [x.id, a.id]) == [1, 3]
    assert needed(graph, [x.id, b.id], [b.id]) == []


def test_1_4_dead_code_is_eliminated():
    # Without its value, the loss itself is read by nothing.
    graph = differentiate(mlp, parameters=1, inputs=1, value=False)
    assert kinds(graph) == "matmul tanh half_squared_norm_vjp tanh_vjp matmul_vjp_y"
    assert graph.forward_count == 2


def test_1_4_chain_of_n_layers_has_2n_plus_1_operators():
    for n in (1, 4, 16):
        graph = chain(n)
        assert len(graph.operators) == 2 * n + 1
        assert graph.forward_count == n


def test_1_4_long_chains_need_no_recursion():
    assert len(chain(3000).operators) == 6001
