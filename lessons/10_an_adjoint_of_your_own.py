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
# is a kernel, for NumPy or any other `xp`, and a shape rule: the result is like x.


# %%
def kernel(xp, x, b):
    return xp.logaddexp(x + b, 0)


def soft(*rules):
    primitive = tc.Primitive("soft", kernel, infer=lambda x, b: (x,), vjp=rules)
    return lambda x, b: tc.apply(primitive, x, b)


rng = np.random.default_rng(0)
x, b = rng.normal(size=(4, 3)), rng.normal(size=3)
print(tc.jit(soft())(x, b)[0])

# %% [markdown]
# The forward pass runs. The backward pass needs a rule for each input. A rule takes the cotangents
# of the outputs, the inputs and the outputs: values of the graph, not arrays. It adds operators to
# the graph. "It returns dL/dy", one often reads; take that literally.
#
# **Predict.** `tc.check_gradient` compares with finite differences, as lesson 2 did. For which of
# the two inputs does it find the error first, before computing a number: for x, or for b?

# %%
my_input = viz.ask("x or b?", "x")


# %%
def dl_dy(cotangents, inputs, outputs):
    return cotangents[0]


def complaint(*rules):
    try:
        tc.check_gradient(soft(*rules), x, b)
    except tc.GraphError as error:
        return str(error)
    return "accepted"


print(first := complaint(dl_dy, dl_dy))
print(f"you said {my_input}; it is {'xb'['argument 1' in first]}")

# %% [markdown]
# The shape of b exposed that one: b was broadcast over the rows, so its rule must sum over them.
# With the sum in place every shape is right, and only the numbers can tell:


# %%
def both(rule):
    return rule, lambda *given: tc.sum(rule(*given), axis=0)


print(complaint(*both(dl_dy)))

# %% [markdown]
# The local derivative is missing: dL/dx = dL/dy * dy/dx, and dy/dx = sigmoid(x + b).


# %%
def by_inputs(cotangents, inputs, outputs):
    return cotangents[0] * tc.sigmoid(inputs[0] + inputs[1])


def by_output(cotangents, inputs, outputs):
    return -cotangents[0] * tc.expm1(-outputs[0])


for rule in (by_inputs, by_output):
    print(f"{rule.__name__}: {complaint(*both(rule))}")

# %% [markdown]
# Accepted, and so are the second derivatives, for which you wrote no rule: a rule made of operators
# is itself differentiable.
#
# The same derivative from another value: exp(-y) = 1 / (1 + exp(x + b)) = 1 - sigmoid(x + b); expm1
# is exp - 1 without the rounding error. In a network `h @ w` computes x, and only `by_inputs` reads
# x again; y is saved in any case, because the adjoint of the next product reads it.

# %% [markdown]
# **Predict.** 16 layers `h = soft(h @ w, b)`, each value 128 KiB. Composed of existing primitives,
# `log(1 + exp(x + b))`, a layer saves 3 values, and store-all's peak is 6.1 MiB. What is it with
# the rule by inputs, and with the one by output, in MiB?

# %%
my_guess = viz.ask("The rule by inputs, by output: how many MiB each?", (0.0, 0.0))

# %%
layers = [{"w": tc.Spec((64, 64)), "b": tc.Spec(64)}] * 16
forms = {"composed": lambda x, b: tc.log(1 + tc.exp(x + b))}
forms |= {rule.__name__: soft(*both(rule)) for rule in (by_inputs, by_output)}
kept, peaks, traces, losses = {}, {}, {}, {}
for name, form in forms.items():

    def loss(params, x, form=form):
        for layer in params:
            x = form(x @ layer["w"], layer["b"])
        return tc.half_squared_norm(x)

    graph = tc.differentiate(tc.build(loss, layers, tc.Spec((256, 64)), graph_name=name))
    read = {data for o in graph.operators[graph.forward_count :] for data in o.inputs}
    kept[name] = sum(graph.data[data].role == "activation" for data in read)
    losses[name], traces[name] = loss, tc.replay(tc.plan(graph))
    peaks[name] = traces[name].peak_bytes / 2**20
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
slopes = {name: tc.grad(loss)(params, batch)[0]["w"] for name, loss in losses.items()}
exact = slopes["composed"]
worst = max(abs(slope - exact).max() / abs(exact).max() for slope in slopes.values())
print(f"largest difference: {worst:.0e} of the largest gradient")

# %%
print(viz.timeline(list(traces.values()), OUT / "10_rules.png"))
print(viz.player(traces["composed"], OUT / "10_player.html"))

# %%
assert complaint(*both(dl_dy)).startswith("soft_1: the vjp rule of soft for argument 0 (x) gives")
assert "argument 1 returned float64[4,3], but the argument is float64[3]" in complaint(dl_dy, dl_dy)
assert [complaint(*both(rule)) for rule in (by_inputs, by_output)] == ["accepted"] * 2
assert kept == {"composed": 48, "by_inputs": 32, "by_output": 16}
assert [round(peak, 1) for peak in peaks.values()] == [6.1, 4.4, 2.5]
assert worst < 1e-12
