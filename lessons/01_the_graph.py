# %% [markdown]
# # 1. The graph
#
# tinyckpt is define-then-run: it first records a function of arrays as a graph of *operators* and
# *data nodes*, and computes nothing. When each operator is evaluated, how often, and which values
# stay in memory is decided afterwards, by a schedule. These lessons are about that decision; this
# first one is about the graph.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)


# %% [markdown]
# The loss is an ordinary Python function, with operators from `tc` and Python's `@`, `+`, `**`:


# %%
def loss(params, x, y):
    h = x
    for layer in params:
        h = tc.tanh(h @ layer["w"] + layer["b"])
    return tc.mean((h - y) ** 2)


# %% [markdown]
# `tc.build` traces it once, with shapes in place of arrays: `tc.Spec((rows, columns))`. Nothing is
# multiplied. Each line below is one operator, with its inputs in brackets.

# %%
params = [{"w": tc.Spec((3, 3)), "b": tc.Spec(3)} for _ in range(2)]
batch = tc.Spec((5, 3))
graph = tc.build(loss, params, batch, batch)
print(graph)

# %% [markdown]
# A data node without a producer is a *source*: an input, a parameter, a constant. The caller
# supplies it, so it is always resident and not charged to any schedule.

# %%
for node in graph.data:
    if node.is_source:
        print(f"{node.role:9}  {node}   {node.nbytes} bytes")

# %% [markdown]
# **Predict.** The loop ran over two layers. If it ran over ten, how many operators would the graph
# have? A terminal prompts for your number; in an editor, replace the 0 and run the next cell.

# %%
my_guess = viz.ask("Ten layers: how many operators?", 0)

# %%
ten = tc.build(loss, [params[0]] * 10, batch, batch)
print(f"you said {my_guess}; it is {len(ten.operators)}: three per layer, and four for the loss")

# %% [markdown]
# The graph contains no loop: tracing unrolled it. It is *data*: a value has a name, a shape, and
# the list of the operators that read it. Memory planning rests on that list. A value can be freed
# after its last reader has run, or earlier if it can be recomputed, as in lesson 4.

# %%
for node in graph.data:
    readers = [graph.operators[i].name for i in graph.consumers[node.id]]
    if not node.is_source:
        print(f"{node.name:12} is read by {', '.join(readers) or 'nothing: it is the result'}")

# %% [markdown]
# Arrays enter when a schedule is run. During tracing `x` has a shape and no values, so `if x > 0:`
# cannot work; the error names the replacement.

# %%
try:
    tc.build(lambda x: x if x > 0 else -x, tc.Spec(3))
except tc.GraphError as error:
    print(error)

# %%
x = np.linspace(-1, 1, 15).reshape(5, 3)
weights = [{"w": np.eye(3), "b": np.zeros(3)} for _ in range(2)]
result = tc.run(tc.plan(graph), weights, x, x)
print(f"loss {float(result.value):.6f}")
print(result.trace)

# %%
(tanh,) = [operator for operator in graph.operators if operator.name == "tanh_2"]
step = result.trace.steps.index(tc.Compute(tanh.id))
print(f"the graph at step {step}, the evaluation of the second layer's tanh:")
print(viz.save_still(result.trace, OUT / "01_graph.png", step))
print("the same in an interactive player, stepped with the arrow keys:")
print(viz.player(result.trace, OUT / "01_player.html", title="Two layers and the loss, forward"))

# %% [markdown]
# In short: a graph records data dependencies, not the time at which anything is computed.

# %%
assert len(graph.operators) == 10
assert len(ten.operators) == 34
assert (step, graph.operators[result.trace.steps[step].operator].kind) == (9, "tanh")
by_hand = np.mean((np.tanh(np.tanh(x)) - x) ** 2)
assert np.isclose(result.value, by_hand)
