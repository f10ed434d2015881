# %% [markdown]
# # Gallery
#
# Every kind of picture, each with the code that makes it.
#
# ## The explainer
#
# What checkpointing does, on a chain of 16 layers, as a GIF for a slide.

# %%
from pathlib import Path

import tinyckpt as tc
from tinyckpt import viz
from tinyckpt.pipeline import one_f_one_b, replay_pipeline, v_half, zb_h1

OUT = Path("out")
OUT.mkdir(exist_ok=True)
sqrt_n = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
print(viz.explainer(sqrt_n, OUT / "explainer.gif"))

# %% [markdown]
# ## Policies side by side
#
# Three policies on a chain of 16 layers, with shared time and memory axes.

# %%
policies = ("store_all", "sqrt_n", "recompute_all")
traces = [tc.replay(tc.plan(tc.networks.chain(16), policy)) for policy in policies]
print(viz.gif(traces, OUT / "compare.gif", fps=12))

# %% [markdown]
# ## A player
#
# The same in an interactive player: arrows, Space, a click on a node or on the memory curve; `?`
# for help. It is one self-contained file that works offline: mail it, or put it on a slide.

# %%
print(viz.player(traces, OUT / "player.html", show="sqrt_n", stop="peak"))

# %% [markdown]
# ## Charts for a paper
#
# Live memory against steps, as PNG, SVG or PDF.

# %%
print(viz.timeline(traces, OUT / "timeline.svg"))

# %% [markdown]
# Peak against cost: one point per policy, the optimum as a line, and the region proven infeasible.

# %%
chain = tc.networks.chain(16)
policies = ("store_all", "sqrt_n", "chen_recursive", "revolve", "recompute_all")
named = [tc.replay(tc.plan(chain, policy)) for policy in policies]
found = tc.frontier(chain)
print(viz.frontier(found, OUT / "frontier.svg", traces=named, bound=found.bounds()))

# %% [markdown]
# Evaluations and peaks against depth, with fitted exponents.

# %%
sizes = (16, 64, 256)
growing = {
    policy: [tc.replay(tc.plan(tc.networks.chain(n), policy)) for n in sizes]
    for policy in ("store_all", "sqrt_n", "chen_recursive", "recompute_all")
}
print(viz.scaling(growing, OUT / "scaling.svg"))

# %% [markdown]
# Every evaluation and every resident value, over space and time, as in the literature.

# %%
print(viz.ledger(named[2], OUT / "ledger.svg"))

# %% [markdown]
# ## The optimum
#
# Revolve with five slots.

# %%
optimum = tc.replay(tc.plan(chain, "revolve", slots=5))
print(viz.gif(optimum, OUT / "revolve.gif", theme="dark"))

# %% [markdown]
# ## Host transfers and pipelines
#
# Offloaded values: which copies overlap with computation, and which stall it.

# %%
units = tc.cost.custom(chain, [1] * 17 + [2] * 16, "units")
moved = tc.plan(chain, "offload", costs=units, bandwidth=256, budget=9 * 512)
beside = tc.timed(moved, tc.Link(256), units, budget=9 * 512)
print(viz.timeline(beside, OUT / "copies.svg"))

# %% [markdown]
# Pipelines: four devices over time, the bubble, and the micro-batches in flight.

# %%
pipelines = [replay_pipeline(make(4, 8)) for make in (one_f_one_b, zb_h1, v_half)]
print(viz.pipeline(pipelines, OUT / "pipelines.svg"))

# %% [markdown]
# ## Large networks
#
# ResNet-50, 517 operators, in half of store-all's memory: one node per block, filled in proportion
# to its resident memory. In the player a click expands a block.

# %%
resnet, _ = tc.networks.network_from_text("resnet50")
half = tc.replay(tc.plan(resnet, budget="50 %", costs=tc.cost.flops(resnet)))
print(viz.gif(half, OUT / "resnet50.gif", fps=25, every=4))
print(viz.player([tc.replay(tc.plan(resnet)), half], OUT / "resnet50.html"))

# %% [markdown]
# ## General graphs
#
# A U-Net, at its peak.

# %%
unet, _ = tc.networks.network_from_text("unet")
trace = tc.replay(tc.plan(unet, "sqrt_n"))
print(viz.save_still(trace, OUT / "unet.svg", trace.peak_step))
