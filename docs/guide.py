# %% [markdown]
# # From a function to a picture, in ten minutes
#
# You need tinyckpt with the extra `viz`: [install](../install.md). Then copy the cells below one
# after the other, or run all of them: `python docs/guide.py`.

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
# `build` writes down which operator reads what; `differentiate` adds the backward half. Both halves
# are one explicit graph.

# %%
graph = tc.differentiate(tc.build(loss, params, batch, batch))
print(graph.name, len(graph.operators), "operators,", graph.forward_count, "of them forward")

# %% [markdown]
# ## 3. A schedule
#
# A schedule says what is computed when, and what is freed when. This one keeps everything until it
# is read for the last time, as frameworks do:

# %%
everything = tc.replay(tc.plan(graph, "store_all"))
print(everything.summary())

# %% [markdown]
# `replay` counts without arrays: exact bytes, exact evaluations. Now ask for half of that peak.
# `plan` tries all [policies](../reference/policies.md) and says how good the best one is:

# %%
schedule = tc.plan(graph, budget="50 %")
print(schedule.certificate)
print(tc.replay(schedule).summary())

# %% [markdown]
# What does it keep, and why? What fills the peak?

# %%
print(tc.explain(schedule))

# %% [markdown]
# ## 4. Numbers
#
# Give arrays, and it runs. The gradients are the same to the last bit under every schedule, and
# what NumPy held is what `replay` said.

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
print("loss", float(recomputed.value), "the same gradients:", same)
print("as predicted:", recomputed.trace == tc.replay(schedule))

# %% [markdown]
# ## 5. A picture
#
# A chart for a paper, an animation for a slide, and a page to step through:

# %%
traces = [everything, tc.replay(schedule)]
print(viz.timeline(traces, OUT / "memory.svg"))
print(viz.gif(traces, OUT / "both.gif"))
print(viz.player(traces, OUT / "player.html"))

# %% [markdown]
# ## 6. The lab
#
# And a page on which the budget is dragged, and a click decides what is kept:

# %%
print(viz.lab(graph, OUT / "lab.html"))

# %% [markdown]
# ## Where next
#
# - [The lessons](../lessons.md): why it works, and how far it goes.
# - [Your own network, policy, costs, profile](../your_own.md).
# - [Your PyTorch model](../torch.md), if that is where it is.
# - [The command line](../reference/command.md) does most of this without a line of Python.
# - [All names](../reference/index.md), and [all words](../reference/glossary.md).

# %%
assert same
assert recomputed.trace == tc.replay(schedule)
