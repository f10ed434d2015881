# %% [markdown]
# # 3. Store all
#
# The simplest schedule evaluates every operator once and keeps every value that the backward pass
# will read. It is the default of every framework: the fastest, with the most saved values.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# From here on we use the *canonical chain*: n layers f1 ... fn of equal size; `l`, the gradient of
# the loss with respect to fn; and the adjoints bn ... b1, where bi reads the value of fi and the
# output of b(i+1). It has 2n+1 operators. The exact results on checkpointing are results on this
# chain.

# %%
chain = tc.networks.chain(4)
schedule = tc.plan(chain, "store_all")
for line in str(schedule).splitlines()[:-1]:
    print(line.partition(" live ")[0])

# %% [markdown]
# Each line is a *step*. `compute` evaluates an operator; `free` releases a value. While an operator
# runs, its inputs and outputs are all in memory, so live memory is counted then. The largest count
# is the *peak*, and the peak decides whether the job fits.

# %% [markdown]
# **Predict.** When is the peak: once the last layer f4 has been computed, or later? How many values
# are live then?

# %%
my_guess = viz.ask("n = 4: how many values are live at the peak?", 0)

# %%
trace = tc.replay(schedule)
peak_step = trace.nodes.index(trace.peak_nodes)
verb = str(schedule).splitlines()[peak_step]
print(f"you said {my_guess}; it is {trace.peak_nodes}, at this step: {verb}")
print(schedule)

# %% [markdown]
# The peak is in the *backward* pass: all four activations, the incoming cotangent, and the outgoing
# one. A measurement of the forward pass alone misses it by two values here, and by much more where
# adjoints need workspace.
#
# Doubling n nearly doubles the peak, which is n+2.

# %%
for n in (4, 8, 16, 32, 64):
    trace = tc.replay(tc.plan(tc.networks.chain(n), "store_all"))
    print(f"n={n:3}: {trace.evaluations:4} evaluations, peak {trace.peak_nodes:3} values")

# %% [markdown]
# These counts come from `replay`, which uses shapes alone. `run` executes the same schedule on
# NumPy and measures the memory of its arrays independently of the plan. Do they agree?

# %%
x = np.random.default_rng(0).normal(size=(8, 8))
measured = tc.run(schedule, x).trace
print(measured.summary())
print("equal, step by step:", measured == tc.replay(schedule))

# %% [markdown]
# A common error is about *what* is stored: not what is expensive to compute, but what the adjoints
# read. The product `x @ w` is the expensive operator of a linear layer, and its own adjoint does
# not need its output: it reads its inputs, `x` and `w`. The output is saved only if the adjoint of
# the next operator reads it.


# %%
def linear(w, x):
    return tc.sum(x @ w)


graph = tc.differentiate(tc.build(linear, tc.Spec((64, 64)), tc.Spec((512, 64))))
for policy in ("store_all", "recompute_all"):
    print(tc.replay(tc.plan(graph, policy)).summary())

# %% [markdown]
# So checkpointing a single linear layer saves nothing: its input is resident either way.

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
