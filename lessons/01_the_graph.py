# %% [markdown]
# # 1. The graph
#
# A function of arrays is a recipe: which operator reads what. Before anything is computed,
# tinyckpt writes the recipe down, as a graph of *operators* and *data nodes*. What is computed
# when, how often, and what is kept in memory, is decided afterwards. That decision is what these
# lessons are about; this first one is about the recipe.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)


# %% [markdown]
# An ordinary Python function, with operators from `tc` and Python's own `@`, `+`, `**`:


# %%
def loss(params, x, y):
    h = x
    for layer in params:
        h = tc.tanh(h @ layer["w"] + layer["b"])
    return tc.mean((h - y) ** 2)


# %% [markdown]
# `tc.build` calls it once, with shapes in place of arrays: `tc.Spec((rows, columns))`. Nothing is
# multiplied. Each line below is one operator; what it reads stands in brackets.

# %%
params = [{"w": tc.Spec((3, 3)), "b": tc.Spec(3)} for _ in range(2)]
batch = tc.Spec((5, 3))
graph = tc.build(loss, params, batch, batch)
print(graph)

# %% [markdown]
# A data node that no operator makes is a *source*: an input, a parameter, a constant. The caller
# brings it, so it is always there, and no schedule is ever charged for it.

# %%
for node in graph.data:
    if node.is_source:
        print(f"{node.role:9}  {node}   {node.nbytes} bytes")

# %% [markdown]
# **Predict.** The loop ran over two layers. If it runs over ten, how many operators does the
# graph have? On a terminal this waits for your number; in an editor, write it in place of the 0,
# and then run the next cell.

# %%
my_guess = viz.ask("Ten layers: how many operators?", 0)

# %%
ten = tc.build(loss, [params[0]] * 10, batch, batch)
print(f"you said {my_guess}; it is {len(ten.operators)}: three a layer, and four for the loss")

# %% [markdown]
# The graph does not know that there was a loop. It is *data*: a value has a name, a shape, and
# the list of the operators which read it. That last list is what memory is all about. A value can
# be given up once its last reader has read it; and before, if it may be computed again. Lesson 4
# does so.

# %%
for node in graph.data:
    readers = [graph.operators[i].name for i in graph.consumers[node.id]]
    if not node.is_source:
        print(f"{node.name:12} is read by {', '.join(readers) or 'nobody: it is the result'}")

# %% [markdown]
# Numbers come in when a schedule is run. `x` has a shape while the function is traced, and no
# values, so `if x > 0:` cannot work; the error says what to write in its place.

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
path = viz.save_still(result.trace, OUT / "01_graph.png", step)
print(f"the graph at step {step}, while the second layer's tanh is computed: {path}")
player = viz.player(result.trace, OUT / "01_player.html")
print(f"the same, to be stepped through in a browser, with the arrow keys: {player}")

# %% [markdown]
# What to take along: a graph says what depends on what. It does not say when anything is
# computed.

# %%
assert len(graph.operators) == 10
assert len(ten.operators) == 34
assert (step, graph.operators[result.trace.steps[step].operator].kind) == (9, "tanh")
by_hand = np.mean((np.tanh(np.tanh(x)) - x) ** 2)
assert np.isclose(result.value, by_hand)
