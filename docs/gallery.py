# %% [markdown]
# # Gallery
#
# Every picture here with the lines that make it.

# %%
from pathlib import Path

import tinyckpt as tc
import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# ## Policies in step
#
# Three policies on a chain of 16 layers, on one scale of time and one of memory.

# %%
policies = ("store_all", "sqrt_n", "recompute_all")
traces = [tc.replay(tc.plan(tc.networks.chain(16), policy)) for policy in policies]
print(viz.gif(traces, OUT / "compare.gif", fps=12))

# %% [markdown]
# ## A chart for a paper

# %%
print(viz.timeline(traces, OUT / "timeline.svg"))

# %% [markdown]
# ## The optimum
#
# Revolve with five slots.

# %%
optimum = tc.replay(tc.plan(tc.networks.chain(16), "revolve", slots=5))
print(viz.gif(optimum, OUT / "revolve.gif", theme="dark"))

# %% [markdown]
# ## Not only chains

# %%
graph, _ = tc.networks.network_from_text("branching:3x8")
print(viz.gif(tc.replay(tc.plan(graph, budget="80 %")), OUT / "branching.gif"))
