# %% [markdown]
# # 3. Store all
#
# The simplest schedule evaluates every operator once and keeps what the backward half will read.
# Every framework does this unless it is told otherwise. It is the fastest, and the hungriest.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# From here on we use the *canonical chain*: n layers f1 ... fn, all of one size; `l`, the
# gradient of the loss with respect to fn; and the adjoints bn ... b1, where bi reads the value of
# fi and what b(i+1) returned. 2n+1 operators. Everything that is known exactly about
# checkpointing is known on it.

# %%
chain = tc.networks.chain(4)
schedule = tc.plan(chain, "store_all")
for line in str(schedule).splitlines()[:-1]:
    print(line.partition(" live ")[0])

# %% [markdown]
# Each line is a *step*. `compute` evaluates an operator; `free` gives a value up. While an
# operator is evaluated its inputs and its outputs are all in memory, so that is when the memory
# is counted. The largest count is the *peak*, and the peak decides whether the job fits.

# %% [markdown]
# **Predict.** When is the peak: when the last layer f4 has been computed, or later? How many
# values are live then?

# %%
my_guess = viz.ask("n = 4: how many values are live at the peak?", 0)

# %%
trace = tc.replay(schedule)
peak_step = trace.nodes.index(trace.peak_nodes)
verb = str(schedule).splitlines()[peak_step]
print(f"you said {my_guess}; it is {trace.peak_nodes}, at this step: {verb}")
print(schedule)

# %% [markdown]
# The peak lies in the *backward* half: all four activations, the cotangent that comes in, and the
# one that goes out. Whoever measures memory after the forward pass alone misses it by two values
# here, and by much more where adjoints need workspace.
#
# Double n, and the peak nearly doubles: n+2.

# %%
for n in (4, 8, 16, 32, 64):
    trace = tc.replay(tc.plan(tc.networks.chain(n), "store_all"))
    print(f"n={n:3}: {trace.evaluations:4} evaluations, peak {trace.peak_nodes:3} values")

# %% [markdown]
# These counts come from `replay`, which looks at shapes alone. Do they hold for real arrays?
# `run` executes the same schedule on NumPy and measures what the arrays occupy, without asking
# the plan.

# %%
x = np.random.default_rng(0).normal(size=(8, 8))
measured = tc.run(schedule, x).trace
print(measured.summary())
print("equal, step by step:", measured == tc.replay(schedule))

# %% [markdown]
# One more thing that is often got wrong: *what* is stored? Not what is expensive to compute, but
# what the adjoints read. The product `x @ w` is the expensive operator of a linear layer, and its
# own adjoint does not need its output: it reads its inputs, `x` and `w`. The output is stored
# only if the next operator's adjoint reads it.


# %%
def linear(w, x):
    return tc.sum(x @ w)


graph = tc.differentiate(tc.build(linear, tc.Spec((64, 64)), tc.Spec((512, 64))))
for policy in ("store_all", "recompute_all"):
    print(tc.replay(tc.plan(graph, policy)).summary())

# %% [markdown]
# So checkpointing one lone linear layer saves nothing: its input is there either way.

# %%
trace = tc.replay(tc.plan(tc.networks.chain(16), "store_all"))
print(viz.gif(trace, OUT / "03_store_all.gif"))
print(viz.timeline(trace, OUT / "03_store_all.png"))
print(viz.player(trace, OUT / "03_player.html"))

# %%
for n in (1, 4, 9, 50):
    trace = tc.replay(tc.plan(tc.networks.chain(n), "store_all"))
    assert (trace.evaluations, trace.peak_nodes) == (2 * n + 1, n + 2)
assert measured == tc.replay(schedule)
lone = [tc.replay(tc.plan(graph, policy)).peak_bytes for policy in ("store_all", "recompute_all")]
assert lone[0] == lone[1]
