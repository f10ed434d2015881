# %% [markdown]
# # 5. The square root of n
#
# Store-all: time n, memory n. Recompute-all: time n², memory 1. Between them lies a bargain that
# is almost too good: memory 2·sqrt(n) for less than one more forward pass.
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
# Cut the chain into k segments of k layers (n = k²). In the forward sweep keep only the value
# between two segments, a *checkpoint*. In the backward sweep, take the segments from the last to
# the first: compute again what is not there, from the checkpoint before it, keep it all, and go
# back through the segment.
#
# **Predict.** 12 layers in three segments, so f4 and f8 are kept. What has to be computed again
# before b11, what before b7, what before b6?

# %%
my_layers = viz.ask("Before b11, before b7, before b6?", "f11, f7, f6")

# %%
dozen = tc.plan(tc.networks.chain(12), "sqrt_n", segments=3)
names = [dozen.graph.operators[s.operator].name for s in dozen.steps if isinstance(s, tc.Compute)]


def again(layer):
    """Return what is computed between one adjoint and the next."""
    between = names[names.index(f"b{layer + 1}") + 1 : names.index(f"b{layer}")]
    return " ".join(between) or "nothing"


print(f"you said {my_layers}; it is {', '.join(map(again, (11, 7, 6)))}")

# %% [markdown]
# The last segment is still there: the backward half begins where the forward half ends. Each other
# one is computed again once, for its last layer; what comes by on the way is kept.

# %%
schedule = tc.plan(tc.networks.chain(16), "sqrt_n")
trace = tc.replay(schedule)
print(schedule.note)
print(trace.summary())

# %% [markdown]
# Count along. Live at the worst moment: k-1 checkpoints, the k values of one segment, two
# cotangents. That is 2k+1. Recomputed: k-1 values in each of the k-1 segments that were dropped
# (the last one is still there when the backward sweep begins, and a checkpoint need not be
# computed again).

# %% [markdown]
# **Predict.** 400 layers, so k = 20. Store-all needs 801 evaluations and 402 values. How many
# values are the peak under sqrt(n), and how many evaluations does it need in total?

# %%
my_guess = viz.ask("400 layers, sqrt(n): which peak, how many evaluations?", (0, 0))

# %%
deep = tc.replay(tc.plan(tc.networks.chain(400), "sqrt_n"))
found = (deep.peak_nodes, deep.evaluations)
print(f"you said {my_guess}; it is {found}: a tenth of the memory for 45 % more evaluations")

# %% [markdown]
# An evaluation is not a second. An adjoint costs about two forward operators, so one more forward
# pass is about a third more time: the limit of sqrt(n) for large n, and less for small n.

# %%
for n in (16, 100, 400, 10_000):
    extra = (isqrt(n) - 1) ** 2
    print(f"n={n:6}: {extra / (n + 2 * n):.1%} more time, if an adjoint costs two evaluations")

# %% [markdown]
# Is k = sqrt(n) the best number of segments? Try them all. The curve is U-shaped: few checkpoints
# leave long segments, many checkpoints are themselves the burden. (So bisection on "more
# checkpoints, less memory" goes wrong.)

# %%
chain = tc.networks.chain(64)
peaks = {k: tc.replay(tc.plan(chain, "sqrt_n", segments=k)).peak_nodes for k in range(1, 65)}
for k in (1, 2, 4, 6, 8, 10, 16, 32, 64):
    print(f"{k:3} segments: peak {peaks[k]:3} values  {'#' * peaks[k]}")

# %% [markdown]
# What to keep matters as much as how much. "Keep what is expensive to compute" sounds right and
# often is not: keep what is *small* and separates what comes before from what comes after;
# recompute what is large and cheap. In a transformer, recompute the attention core and the
# activations, and keep the outputs of the weight products.
#
# Here it is decided by hand: `retain` keeps what you name, and recomputes the rest once.

# %%
best = tc.replay(tc.plan(chain, "sqrt_n"))
uneven = tc.replay(tc.plan(chain, "retain", keep=["f2", "f4", "f6", "f8", "f10", "f12", "f14"]))
print(f"seven checkpoints at equal distances: peak {best.peak_nodes}")
print(f"seven checkpoints at the beginning:   peak {uneven.peak_nodes}")

# %% [markdown]
# All three policies, in step, on shared scales:

# %%
policies = ("store_all", "sqrt_n", "recompute_all")
traces = [tc.replay(tc.plan(tc.networks.chain(16), policy)) for policy in policies]
print(viz.gif(traces, OUT / "05_compare.gif", fps=12))
print(viz.timeline(traces, OUT / "05_timeline.png"))
print(viz.player(traces, OUT / "05_player.html"))

# %% [markdown]
# **Challenge.** 20 layers within 8 values, with as little recomputation as you can. Keep what you
# like; what you drop is computed again once. Click it on the page, or name it here.

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
# Segments need not be of one length. What is gone back through last may be longest: the other
# checkpoints have made room by then.

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
