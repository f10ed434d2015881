# %% [markdown]
# # 4. Recompute all, and what O(n²) means
#
# The other extreme saves nothing: when an adjoint needs an activation, it is recomputed from the
# input. On a chain, memory no longer grows with depth. Time does, and how fast is the question.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %%
schedule = tc.plan(tc.networks.chain(4), "recompute_all")
print(schedule)

# %% [markdown]
# Trace it by hand: b3 needs f3, so f1, f2, f3 are recomputed, each freed once the next one is
# computed. Then b2 needs f2: f1 and f2 again. At the peak three values are live, however long the
# chain is: the activation, the incoming cotangent and the outgoing one.
#
# A recomputation reads forward values only. It does not need the incoming cotangent, so it can run
# early, while the device waits for something else. The *adjoint* that it serves needs both.

# %% [markdown]
# **Predict.** Store-all needs 2n+1 evaluations, so 33 for n = 16. How many does recompute-all
# need?

# %%
my_guess = viz.ask("n = 16, recompute all: how many evaluations?", 0)

# %%
trace = tc.replay(tc.plan(tc.networks.chain(16), "recompute_all"))
print(f"you said {my_guess}; it is {trace.evaluations}: 16 + 15 + ... + 1 forward, and 17")

# %% [markdown]
# The sum 1 + 2 + ... + n is n(n+1)/2: twice the depth is four times the work. On a log-log plot the
# evaluations approach a line of slope 2, while the peak is a line of slope 0:

# %%
sizes = np.array([64, 128, 256, 512])
traces = {
    policy: [tc.replay(tc.plan(tc.networks.chain(int(n)), policy)) for n in sizes]
    for policy in ("store_all", "recompute_all")
}
for policy, found in traces.items():
    work = np.polyfit(np.log(sizes), np.log([t.evaluations for t in found]), 1)[0]
    peak = np.polyfit(np.log(sizes), np.log([t.peak_nodes for t in found]), 1)[0]
    print(f"{policy:14} evaluations grow like n^{work:.2f}, the peak like n^{peak:.2f}")
print(viz.scaling(traces, OUT / "04_scaling.png"))

# %% [markdown]
# Recomputation is exact. The same kernel on the same inputs gives the same bits, and random numbers
# are no exception if they are seeded: the dropout mask below is not stored but regenerated.


# %%
def loss(params, x):
    h = x
    for layer, w in enumerate(params):
        h = tc.dropout(tc.tanh(h @ w), 0.2, seed=layer)
    return tc.sum(h * h)


rng = np.random.default_rng(1)
params, x = [rng.normal(size=(8, 8)) for _ in range(6)], rng.normal(size=(4, 8))
gradients = {
    policy: tc.grad(loss, policy)(params, x) for policy in ("store_all", "recompute_all", "sqrt_n")
}
same = all(
    np.array_equal(a, b)
    for policy in gradients
    for a, b in zip(gradients["store_all"], gradients[policy], strict=True)
)
print("all gradients equal to the last bit:", same)

# %% [markdown]
# A trap: one checkpoint around the *whole* model. The forward pass saves nothing; then everything
# is recomputed, and kept, for the backward pass.
#
# **Predict.** 50 layers. Store-all has a peak of 52 values. What is it with a single checkpoint?

# %%
my_peak = viz.ask("n = 50, one checkpoint around it all: how many values?", 0)

# %%
chain = tc.networks.chain(50)
stored, wrapped = tc.replay(tc.plan(chain)), tc.replay(tc.plan(chain, "retain", keep=[]))
print(f"you said {my_peak}; it is {wrapped.peak_nodes}")
print(stored.summary())
print(wrapped.summary())
print(viz.timeline([stored, wrapped], OUT / "04_timeline.png"))

# %% [markdown]
# The cost is a whole forward pass (except f50, which is still resident); the gain is a single
# value. The peak only moves: a backward pass that needs every value still has every value live.

# %%
print(viz.gif(trace, OUT / "04_recompute_all.gif", fps=25))
nine = [tc.plan(tc.networks.chain(9), policy) for policy in ("store_all", "recompute_all")]
print(viz.player([tc.replay(schedule) for schedule in nine], OUT / "04_player.html"))

# %%
for n in (1, 4, 16, 64):
    trace = tc.replay(tc.plan(tc.networks.chain(n), "recompute_all"))
    assert trace.evaluations == n * (n + 1) // 2 + n + 1
    assert trace.peak_nodes == 3
assert same
assert (stored.peak_nodes, wrapped.peak_nodes, wrapped.recomputations) == (52, 51, 49)
