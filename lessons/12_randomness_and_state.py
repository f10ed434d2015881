# %% [markdown]
# # 12. Randomness and state
#
# Recomputation assumes that an operator is pure: the same result every time, and no side effect.
# Two layers, as usually written, violate that: dropout, which draws random numbers, and batch norm,
# which updates running statistics. One remedy serves both: **explicit inputs, explicit outputs.**

# %%
from dataclasses import replace
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 16))

# %% [markdown]
# First the usual way, in plain NumPy. A generator has hidden state, so a recomputation draws
# another mask.

# %%
generator = np.random.default_rng(1)


def hidden_dropout(values):
    return values * (generator.random(values.shape) < 0.8) / 0.8


first, again = hidden_dropout(x), hidden_dropout(x)
differ = int((first != again).sum())
print(f"recomputed, {differ} of {x.size} elements differ: the gradient is of another loss")

# %% [markdown]
# Nothing fails and no shape is wrong; training is merely a little worse. (For this reason PyTorch's
# checkpoint saves the RNG state before the forward pass, and restores it.)
#
# Batch norm keeps a running mean, initially 0, updated by each batch: `old + 0.1 (new - old)`.


# %%
class HiddenNorm:
    running = np.zeros(16)

    def __call__(self, values):
        mean = values.mean(axis=0)
        self.running = self.running + 0.1 * (mean - self.running)  # a side effect
        return values - mean


# %% [markdown]
# **Predict.** After one training step the running mean should be 0.1 times the mean of the batch.
# The layer is recomputed once, in the backward pass. How many times the batch's mean is it then?

# %%
my_guess = viz.ask("How many times the batch's mean?", 0.0)

# %%
norm = HiddenNorm()
norm(x)  # the forward pass
norm(x)  # the recomputation
factor = float((norm.running / x.mean(axis=0)).mean())
print(f"you said {my_guess}; it is {factor:.2f}: the same batch was counted twice")

# %% [markdown]
# Now explicitly. Dropout takes a *seed*: element i of the mask depends on the seed and on i alone.
# Batch norm returns mean and variance of its batch as outputs; further operators compute the new
# running statistics from these and the old ones.


# %%
def loss(params, running, x, labels, seed):
    noted = []
    for number, (w, old) in enumerate(zip(params[:-1], running, strict=True)):
        h, mean, variance = tc.batch_norm(x @ w, np.ones(16), np.zeros(16))
        both = tc.moved_statistics(old["mean"], old["variance"], mean, variance, count=len(h))
        noted.append(dict(zip(("mean", "variance"), both, strict=True)))
        x = tc.dropout(tc.relu(h), 0.2, len(params) * seed + number)
    return tc.cross_entropy(x @ params[-1], labels), noted


params = [rng.normal(size=(16, 16)) / 4 for _ in range(9)]
running = [{"mean": np.zeros(16), "variance": np.ones(16)} for _ in params[:-1]]
labels = rng.integers(0, 16, size=64)

# %% [markdown]
# The seed is an argument: one program serves all steps, and each draws its own masks. The other
# results of the loss are *carried* to the next step. Three steps under each of three policies, and
# the evaluations per step, dropout's adjoint included:

# %%
finals, counts, traces = {}, {}, []
for policy in ("store_all", "sqrt_n", "recompute_all"):
    step = tc.train_step(loss, tc.sgd(0.1), policy, carry=True)
    state = step.init(params, running)
    for number in range(3):
        state, _ = step(state, x, labels, number)
    finals[policy] = [*state["parameters"], *(old["mean"] for old in state["carried"])]
    schedule = step.schedule(state, x, labels, 0)
    operators = schedule.graph.operators
    kinds = [operators[s.operator].kind for s in schedule.steps if isinstance(s, tc.Compute)]
    updates = [s for s in schedule.steps if isinstance(s, tc.Update)]
    counts[policy] = (kinds.count("batch_norm"), kinds.count("seeded_dropout"), len(updates))
    traces.append(tc.replay(schedule))
    print("{:13}: batch_norm {:3}, dropout {:3}, updates {}".format(policy, *counts[policy]))
same = all(
    np.array_equal(array, stored)
    for arrays in finals.values()
    for array, stored in zip(arrays, finals["store_all"], strict=True)
)
print("parameters and running means, equal to the last bit:", same)

# %% [markdown]
# Recompute-all evaluates 8 batch norms 196 times per step, and still runs 26 updates: of 9
# parameters, 16 statistics and the step number. An *update* is a kind of step of its own. A
# schedule that runs one twice, or reads the old value after it, is rejected before anything runs:

# %%
noted = next(s for s in updates if "mean" in operators[s.operator].name)
after = schedule.steps.index(noted) + 1
try:
    tc.replay(replace(schedule, steps=(*schedule.steps[:after], noted, *schedule.steps[after:])))
except tc.ScheduleError as error:
    print(refusal := str(error))

# %% [markdown]
# The mask is not saved: dropout's adjoint is dropout again, of the cotangent, with the same seed.
# Others save one byte per element. The same seed gives the same mask, the next seed another:

# %%
adjoint = next(o for o in operators if o.kind == "seeded_dropout" and o.phase == "backward")
reads = [schedule.graph.data[data] for data in adjoint.inputs]
print(f"{adjoint.name} reads {reads[0]}, the cotangent, and {reads[1]}, the seed")
draw = tc.jit(lambda seed: tc.dropout(np.ones(20), 0.2, seed) > 0)
masks = ["".join("01"[kept] for kept in draw(seed).tolist()) for seed in (5, 5, 6)]
print(*masks)

# %%
print(viz.timeline(traces, OUT / "12_timeline.png"))
print(viz.player(traces, OUT / "12_player.html", title="Dropout and batch norm, recomputed"))

# %%
assert (differ, round(factor, 12), same) == (322, 0.19, True)
assert list(counts.values()) == [(8, 16, 26), (16, 21, 26), (196, 172, 26)]
assert refusal.endswith(f"as it was before its update at step {after - 1}")
assert [node.role for node in reads] == ["cotangent", "activation"]
assert masks[0] == masks[1] != masks[2]
