# %% [markdown]
# # 5. The square root of n
#
# Store-all takes time n and memory n; recompute-all takes time n² and memory 1. In between, memory
# 2·sqrt(n) costs less than one extra forward pass.
#
# Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", arXiv 1604.06174.

# %%
from math import isqrt
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# Split the chain into k segments of k layers (n = k²). The forward pass keeps only the value
# between two segments, a *checkpoint*. The backward pass takes the segments from last to first: it
# recomputes the missing values from the preceding checkpoint, keeps them all, and runs the adjoints
# of the segment.
#
# **Predict.** 12 layers in three segments, so f4 and f8 are kept. Which values are recomputed
# before b11, before b7, and before b6?

# %%
my_layers = viz.ask("Before b11, before b7, before b6?", "f11, f7, f6")

# %%
dozen = tc.plan(tc.networks.chain(12), "sqrt_n", segments=3)
names = [dozen.graph.operators[s.operator].name for s in dozen.steps if isinstance(s, tc.Compute)]


def again(layer):
    """Return the layers recomputed right before the adjoint of a layer."""
    between = names[names.index(f"b{layer + 1}") + 1 : names.index(f"b{layer}")]
    return " ".join(between) or "nothing"


print(f"you said {my_layers}; it is {', '.join(map(again, (11, 7, 6)))}")

# %% [markdown]
# The last segment is still resident: the backward pass begins where the forward pass ends. Every
# other segment is recomputed once, up to its last layer, and its intermediate values are kept.

# %%
schedule = tc.plan(tc.networks.chain(16), "sqrt_n")
trace = tc.replay(schedule)
print(schedule.note)
print(trace.summary())

# %% [markdown]
# Count. Live at the peak: k-1 checkpoints, the k values of one segment, two cotangents. That is
# 2k+1. Recomputed: k-1 values in each of the k-1 evicted segments (the last one is still resident
# when the backward pass begins, and a checkpoint need not be recomputed).

# %% [markdown]
# **Predict.** 400 layers, so k = 20. Store-all needs 801 evaluations and 402 values. What are the
# peak, in values, and the total number of evaluations under sqrt(n)?

# %%
my_guess = viz.ask("400 layers, sqrt(n): which peak, how many evaluations?", (0, 0))

# %%
deep = tc.replay(tc.plan(tc.networks.chain(400), "sqrt_n"))
found = (deep.peak_nodes, deep.evaluations)
print(f"you said {my_guess}; it is {found}: a tenth of the memory for 45 % more evaluations")

# %% [markdown]
# Evaluations are not seconds. An adjoint costs about two forward operators, so one extra forward
# pass is about a third more time: the limit of sqrt(n) for large n, and less for small n.

# %%
for n in (16, 100, 400, 10_000):
    extra = (isqrt(n) - 1) ** 2
    print(f"n={n:6}: {extra / (n + 2 * n):.1%} more time, if an adjoint costs two evaluations")

# %% [markdown]
# Is k = sqrt(n) the best number of segments? A sweep over all of them is U-shaped: few checkpoints
# leave long segments, many checkpoints take memory themselves. (So bisection on "more checkpoints,
# less memory" fails.)

# %%
chain = tc.networks.chain(64)
peaks = {k: tc.replay(tc.plan(chain, "sqrt_n", segments=k)).peak_nodes for k in range(1, 65)}
for k in (1, 2, 4, 6, 8, 10, 16, 32, 64):
    print(f"{k:3} segments: peak {peaks[k]:3} values  {'#' * peaks[k]}")

# %% [markdown]
# What to keep matters as much as how much. "Keep what is expensive to compute" sounds right and
# often is not: keep values that are *small* and separate the graph; recompute values that are large
# and cheap. In a transformer, recompute the attention core and the activation functions, and keep
# the outputs of the weight products.
#
# Here the choice is made by hand: `retain` keeps the named values and recomputes the rest once.

# %%
best = tc.replay(tc.plan(chain, "sqrt_n"))
uneven = tc.replay(tc.plan(chain, "retain", keep=["f2", "f4", "f6", "f8", "f10", "f12", "f14"]))
print(f"seven checkpoints at equal distances: peak {best.peak_nodes}")
print(f"seven checkpoints at the beginning:   peak {uneven.peak_nodes}")

# %% [markdown]
# All three policies side by side, on shared scales:

# %%
policies = ("store_all", "sqrt_n", "recompute_all")
traces = [tc.replay(tc.plan(tc.networks.chain(16), policy)) for policy in policies]
print(viz.gif(traces, OUT / "05_compare.gif", fps=12))
print(viz.timeline(traces, OUT / "05_timeline.png"))
print(viz.player(traces, OUT / "05_player.html", show="sqrt_n", stop="peak"))

# %% [markdown]
# **Challenge.** 20 layers within 8 values, with as little recomputation as possible. Choose the
# values to keep; evicted values are recomputed once. Click on the page, or name them here.

# %%
twenty = tc.networks.chain(20)
print(viz.lab(twenty, OUT / "05_lab.html", network="chain:20", challenge="8 nodes"))

# %%
layers = [f"f{layer}" for layer in range(1, 21)]
my_choice = viz.ask("Which values do you keep?", ("f5", "f10", "f15"), among=layers)

# %%
mine = tc.plan(twenty, "retain", keep=my_choice)
print(f"you said {my_choice}; it is {viz.challenge(mine, '8 nodes')}")

# %% [markdown]
# Segments need not have equal length. The one that the backward pass reaches last may be the
# longest: the other checkpoints have been freed by then.

# %%
for k in (2, 4, 8, 10, 20):
    n = k * k
    trace = tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n"))
    assert (trace.evaluations, trace.peak_nodes) == (2 * n + 1 + (k - 1) ** 2, 2 * k + 1)
assert found == (41, 1162)
assert min(peaks.values()) == peaks[8] == 17
assert peaks[1] > peaks[8] < peaks[64]
assert uneven.peak_nodes > 2 * best.peak_nodes
x = np.linspace(-1, 1, 64).reshape(8, 8)
results = [tc.run(trace.schedule, x).gradients for trace in traces]
assert all(np.array_equal(results[0], other) for other in results)
