# %% [markdown]
# # From a function to a picture, in ten minutes
#
# You need tinyckpt with the extra `viz`: [install](../install.md). Then copy the cells below one by
# one, or run all of them: `python docs/guide.py`.

# %% [markdown]
# ## 1. A function
#
# An ordinary function of arrays, here a perceptron of twelve layers and its loss. Shapes are
# enough; nothing is computed yet.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)


def loss(params, x, y):
    h = x
    for number, layer in enumerate(params, start=1):
        with tc.scope(f"layer{number}"):
            h = tc.tanh(h @ layer["w"] + layer["b"])
    return tc.mean((h - y) ** 2)


width, rows, layers = 64, 256, 12
params = [{"w": tc.Spec((width, width)), "b": tc.Spec(width)} for _ in range(layers)]
batch = tc.Spec((rows, width))

# %% [markdown]
# ## 2. A graph
#
# `build` traces the function into operators and values; `differentiate` appends the backward pass.
# Both passes form one explicit graph.

# %%
graph = tc.differentiate(tc.build(loss, params, batch, batch))
print(graph.name, len(graph.operators), "operators,", graph.forward_count, "of them forward")

# %% [markdown]
# ## 3. A schedule
#
# A schedule lists when each value is computed and when it is freed. This one keeps every value
# until its last read, as frameworks do:

# %%
everything = tc.replay(tc.plan(graph, "store_all"))
print(everything.summary())

# %% [markdown]
# `replay` simulates a schedule without arrays: exact bytes, exact evaluations. Now halve that peak.
# `plan` tries all [policies](../reference/policies.md) and certifies the gap between the best one
# and the optimum:

# %%
schedule = tc.plan(graph, budget="50 %")
print(schedule.certificate)
print(tc.replay(schedule).summary())

# %% [markdown]
# `explain` shows what it keeps, why, and what is live at the peak:

# %%
print(tc.explain(schedule))

# %% [markdown]
# ## 4. Numbers
#
# With arrays, the schedule runs. The gradients are bitwise equal under every schedule, and the
# memory measured on NumPy is what `replay` predicted.

# %%
rng = np.random.default_rng(0)
weights = [
    {"w": rng.normal(size=(width, width)) / width**0.5, "b": np.zeros(width)} for _ in params
]
x, y = rng.normal(size=(2, rows, width))
kept = tc.run(everything.schedule, weights, x, y)
recomputed = tc.run(schedule, weights, x, y)
same = all(
    np.array_equal(kept.gradients[layer][part], recomputed.gradients[layer][part])
    for layer in range(layers)
    for part in ("w", "b")
)
print("loss", float(recomputed.value), "bitwise equal gradients:", same)
print("as predicted:", recomputed.trace == tc.replay(schedule))

# %% [markdown]
# ## 5. A picture
#
# A chart for a paper, an animation for a slide, and an interactive player:

# %%
traces = [everything, tc.replay(schedule)]
print(viz.timeline(traces, OUT / "memory.svg"))
print(viz.gif(traces, OUT / "both.gif"))
print(viz.player(traces, OUT / "player.html"))

# %% [markdown]
# ## 6. The lab
#
# The lab is a page with a slider for the budget; a click decides whether a value is kept:

# %%
print(viz.lab(graph, OUT / "lab.html"))

# %% [markdown]
# ## Where next
#
# - [The lessons](../lessons.md): how it works, and its limits.
# - [Your own network, policy, costs, profile](../your_own.md).
# - [Your PyTorch model](../torch.md).
# - [The command line](../reference/command.md) does most of this without a line of Python.
# - [API reference](../reference/index.md) and [glossary](../glossary.md).

# %%
assert same
assert recomputed.trace == tc.replay(schedule)
