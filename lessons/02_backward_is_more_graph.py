# %% [markdown]
# # 2. The backward pass is just more graph
#
# Training needs the gradient of the loss with respect to every parameter. No second mechanism
# computes it: `tc.differentiate` traverses the graph from the loss back to the first argument, the
# parameters (`wrt=` selects another), and appends operators of the same kind to the same graph.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)


# %%
def loss(w, x):
    return tc.sum(tc.tanh(x @ w))


w, x = tc.Spec((3, 2)), tc.Spec((4, 3))
graph = tc.differentiate(tc.build(loss, w, x))
print(graph)

# %% [markdown]
# Read the backward pass slowly. Each forward operator `y = f(x)` has an adjoint, its vjp
# (vector-Jacobian product). The adjoint takes the *cotangent* of y, dL/dy, and returns the
# cotangent of x, **dL/dx**: not dL/dy, as one often reads. So adjoints chain: the output of one is
# the input of the next. The first cotangent is that of the loss itself, dL/dL = 1.
#
# An adjoint also reads forward values. `tanh_1_vjp` reads `tanh_1`, the *output* of the forward
# operator, since tanh' = 1 - tanh^2, and `matmul_1_vjp` reads `x`. These edges from the forward
# pass to the backward pass are the whole reason why training needs so much memory.

# %%
forward, backward = graph.operators[: graph.forward_count], graph.operators[graph.forward_count :]
made = {data for operator in forward for data in operator.outputs}
for operator in backward:
    read = [graph.data[data].name for data in operator.inputs if data in made]
    if read:
        print(f"{operator.name} needs {', '.join(read)} from the forward pass")

# %% [markdown]
# A gradient is correct if it predicts the change of the loss along a random direction of w. The
# change is measured by two evaluations of the loss, a little to either side:

# %%
rng = np.random.default_rng(0)
w_value, x_value = rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
direction, h = rng.normal(size=(3, 2)), 1e-5
slope = (tc.grad(loss)(w_value, x_value) * direction).sum()
evaluate = tc.jit(loss)
above = evaluate(w_value + h * direction, x_value)
below = evaluate(w_value - h * direction, x_value)
measured = (above - below) / (2 * h)
print(f"the gradient says {slope:.8f}, the difference quotient {measured:.8f}")

# %% [markdown]
# **Predict.** Operators differ in what their adjoints read. Let z = x @ w, s = sin(z), e = exp(s),
# p = e * u, and let the loss be the sum of p. Which of x, z, s, e and p does the backward pass to
# the gradient of w read?

# %%
my_values = viz.ask("Which of x, z, s, e, p does the backward pass read?", "x z s e p")


# %%
def tower(w, x, u):
    return tc.sum(tc.exp(tc.sin(x @ w)) * u)


towers = tc.differentiate(tc.build(tower, *[tc.Spec((4, 4))] * 3))
letters = {"x": "x", "matmul_1": "z", "sin_1": "s", "exp_1": "e", "multiply_1": "p"}
adjoints = towers.operators[towers.forward_count :]
names = {towers.data[data].name for operator in adjoints for data in operator.inputs}
answer = " ".join(letter for name, letter in letters.items() if name in names)
print(towers)
print(f"you said {my_values}; it is {answer}")

# %% [markdown]
# exp is its own derivative, so its adjoint reads its output, e. The adjoint of sin needs cos(z) and
# reads its input. No adjoint reads s or the product with u: neither needs to be saved.

# %% [markdown]
# **Predict.** In a layer `z = x @ w`, the gradient of w is `x.T @ g`, where g is the cotangent of
# z. Which product carries the cotangent to x, and so to the layer before: `g @ w` or `g @ w.T`? The
# shapes decide: x is (4, 3), w is (3, 2), g is (4, 2).

# %%
my_guess = viz.ask("g @ w or g @ w.T?", "g @ w")


# %%
def both(params, x):
    return tc.sum(tc.tanh(tc.tanh(x @ params["a"]) @ params["b"]))


two = tc.differentiate(tc.build(both, {"a": tc.Spec((3, 3)), "b": w}, x))
program = tc.compile(tc.plan(two)).source
products = [line.strip() for line in program.splitlines() if "@" in line]
print("\n".join(products))
print(f"you said {my_guess}; it is g @ w.T: the recursion uses the transposed weight")

# %% [markdown]
# In the picture each adjoint is below its operator, and an arrow is a read: from a `tanh` down to
# its own adjoint, and to the adjoint of the next product, which reads it as its input. No adjoint
# reads the output of a product, so no arrow leads down from one.

# %%
trace = tc.replay(tc.plan(two))
print(viz.save_still(trace, OUT / "02_backward.png", step=12))
print(viz.player(trace, OUT / "02_player.html", title="Two layers, forward and backward"))

# %%
assert np.isclose(slope, measured, rtol=1e-6)
assert any(line.endswith(".mT") for line in products)  # g @ w.T
assert any(".mT @" in line for line in products)  # x.T @ g
tanh_vjp = next(operator for operator in backward if operator.name == "tanh_1_vjp")
assert graph.data[tanh_vjp.inputs[0]].name == "tanh_1"
assert answer == "x z e"
