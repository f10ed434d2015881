# %% [markdown]
# # 10. A custom vjp
#
# Every operator has a vjp rule. Here you write one: get it wrong, see the check fail, correct it.
# Then comes the part that is seldom taught. Several rules are correct, and they differ in memory,
# because **what a rule reads is what is saved**.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)


# %% [markdown]
# The operator is softplus with its bias, fused into one: `y = log(1 + exp(x + b))`. A *primitive*
# is a kernel, for NumPy or any other `xp`; a shape rule, here that the result is like x; and a vjp
# rule for each input, x and b.


# %%
def kernel(xp, x, b):
    return xp.logaddexp(x + b, 0)


def like_x(x, b):
    return (x,)


def operator(rules):
    """Return the operator as a function of x and b, with these vjp rules."""
    primitive = tc.Primitive("soft", kernel, infer=like_x, vjp=rules)

    def soft(x, b):
        return tc.apply(primitive, x, b)

    return soft


rng = np.random.default_rng(0)
x, b = rng.normal(size=(4, 3)), rng.normal(size=3)
forward_only = operator(rules=())
print(tc.jit(forward_only)(x, b)[0])

# %% [markdown]
# The forward pass runs without rules. The backward pass needs one for each input. A rule takes the
# cotangents of the outputs, the inputs and the outputs: values of the graph, not arrays. It adds
# operators to the graph. "It returns dL/dy", one often reads; take that literally.
#
# **Predict.** `tc.check_gradient` compares with finite differences, as lesson 2 did. For which of
# the two inputs does it find the error first, before computing a number: for x, or for b?

# %%
my_input = viz.ask("x or b?", "x")


# %%
def dl_dy(cotangents, inputs, outputs):
    return cotangents[0]


def complaint(rules):
    """Return what the check says of two rules, for x and for b."""
    try:
        tc.check_gradient(operator(rules), x, b)
    except tc.GraphError as error:
        return str(error)
    return "accepted"


first = complaint((dl_dy, dl_dy))
print(first)
print(f"you said {my_input}; it is {'b' if 'argument 1' in first else 'x'}")

# %% [markdown]
# The shape of b exposed that one: b was broadcast over the rows, so its rule must sum over them.
# With the sum in place every shape is right, and only the numbers can tell:


# %%
def both(rule):
    """Return the rules for x and for b: the second sums the first over the rows."""

    def rule_of_b(cotangents, inputs, outputs):
        return tc.sum(rule(cotangents, inputs, outputs), axis=0)

    return (rule, rule_of_b)


print(complaint(both(dl_dy)))

# %% [markdown]
# The local derivative is missing: dL/dx = dL/dy * dy/dx, and dy/dx = sigmoid(x + b).


# %%
def by_inputs(cotangents, inputs, outputs):
    x, b = inputs
    return cotangents[0] * tc.sigmoid(x + b)


def by_output(cotangents, inputs, outputs):
    y = outputs[0]
    return -cotangents[0] * tc.expm1(-y)


print("by inputs:", complaint(both(by_inputs)))
print("by output:", complaint(both(by_output)))

# %% [markdown]
# The same derivative from two different values: exp(-y) = 1 / (1 + exp(x + b)) = 1 - sigmoid(x +
# b), and `expm1` is exp - 1 without the rounding error. In a network `h @ w` computes x, and only
# `by_inputs` reads x again; y is saved in any case, because the adjoint of the next product reads
# it.
#
# Second derivatives are right, too, and you wrote no rule for them. A rule made of operators is
# itself a piece of graph, and can be differentiated again: `tc.gradients` returns gradients as
# values, of which a loss can be made. This one punishes large gradients:


# %%
def penalised(b, x):
    loss = tc.sum(operator(both(by_output))(x, b))
    slope = tc.gradients(loss, b)
    return loss + 0.1 * tc.sum(slope * slope)


tc.check_gradient(penalised, b, x)
print("the gradient of a penalty on the gradient is right")

# %% [markdown]
# **Predict.** 16 layers `h = soft(h @ w, b)`, each value 128 KiB. Composed of existing primitives,
# `log(1 + exp(x + b))`, a layer saves 3 values, and store-all's peak is 6.1 MiB. What is it with
# the rule by inputs, and with the one by output, in MiB?

# %%
my_guess = viz.ask("The rule by inputs, by output: how many MiB each?", (0.0, 0.0))


# %%
def composed(x, b):
    return tc.log(1 + tc.exp(x + b))


def loss_of(form):
    """Return the loss of a network whose layers use one of the three forms."""

    def loss(params, x):
        for layer in params:
            x = form(x @ layer["w"], layer["b"])
        return tc.half_squared_norm(x)

    return loss


losses = {
    "composed": loss_of(composed),
    "by_inputs": loss_of(operator(both(by_inputs))),
    "by_output": loss_of(operator(both(by_output))),
}
layers = [{"w": tc.Spec((64, 64)), "b": tc.Spec(64)}] * 16
kept, peaks, traces = {}, {}, {}
for name, loss in losses.items():
    graph = tc.differentiate(tc.build(loss, layers, tc.Spec((256, 64)), graph_name=name))
    saved = [value for value in tc.saved_values(graph) if value.role == "activation"]
    traces[name] = tc.replay(tc.plan(graph))
    kept[name], peaks[name] = len(saved), traces[name].peak_bytes / 2**20
    print(f"{name:9} {kept[name]} values read by the backward pass, {peaks[name]:.1f} MiB")
print(f"you said {my_guess}; it is {peaks['by_inputs']:.1f} and {peaks['by_output']:.1f}")

# %% [markdown]
# This takes no policy and no recomputation: less than half of the memory, for one line of algebra.
# It is why the rule of `tanh` reads its output. Where there is no such formula (gelu is not
# monotonic: its output does not determine its input), the input is saved, or recomputed.
#
# The gradients agree up to rounding, not bitwise: the formulas differ.

# %%
params = [{"w": rng.normal(size=(64, 64)) / 8, "b": np.zeros(64)} for _ in layers]
batch = rng.normal(size=(256, 64))
gradients = {name: tc.grad(loss)(params, batch)[0]["w"] for name, loss in losses.items()}
exact = gradients["composed"]
worst = max(abs(found - exact).max() / abs(exact).max() for found in gradients.values())
print(f"largest difference: {worst:.0e} of the largest gradient")

# %%
print(viz.timeline(list(traces.values()), OUT / "10_rules.png"))
print(viz.player(traces["composed"], OUT / "10_player.html", title="Composed of primitives"))

# %%
wrong = "soft_1: the vjp rule of soft for argument 0 (x) gives"
assert complaint(both(dl_dy)).startswith(wrong)
assert "argument 1 returned float64[4,3], but the argument is float64[3]" in first
assert complaint(both(by_inputs)) == complaint(both(by_output)) == "accepted"
assert kept == {"composed": 48, "by_inputs": 32, "by_output": 16}
assert [round(peak, 1) for peak in peaks.values()] == [6.1, 4.4, 2.5]
assert worst < 1e-12
