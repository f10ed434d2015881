# %% [markdown]
# # 17. Compression: bias and variance
#
# Saved values need not be stored exactly. Mesa (Pan et al., arXiv 2111.11124) and ActNN (Chen et
# al., arXiv 2104.14129) quantise them to 8, 4 or 2 bits, and dequantise them when a derivative
# reads them. The gradients then have an error. Its size is one question; whether it is *biased* is
# another.

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
rng = np.random.default_rng(0)

# %% [markdown]
# Quantisation is per group, here per row of an array: store the group's minimum and maximum, and
# for each element its position between them, in 2^bits - 1 steps. It is seldom on a step. Round to
# nearest; or stochastically, up the more often the closer the upper step is:


# %%
def read_back(x, bits, chance):
    """Return an array quantised and dequantised, and the step size of each row."""
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    step = (high - low) / (2**bits - 1)
    shift = rng.random(x.shape) if chance else 0.5
    return low + step * np.floor((x - low) / step + shift), step


x = rng.normal(size=(1000, 256))
errors = {}
for name, chance in (("nearest", False), ("stochastic", True)):
    back, step = read_back(x, 4, chance)
    errors[name] = (back - x) / step
    squares = (errors[name] ** 2).mean()
    print(f"{name:10}: error at most {abs(errors[name]).max():.3f} steps, squared {squares:.4f}")

# %% [markdown]
# Stochastically, an element at a fraction f of a step goes up with probability f: it is unbiased,
# and its variance is f (1 - f) steps squared: at most 1/4, and 1/6 on average. To nearest it is
# 1/12. Is that better? The gradient of a product's weights, `h.T @ g`, of relu's h in 4 bits:

# %%
h, g = np.maximum(rng.normal(size=(512, 64)), 0), rng.normal(size=(512, 16))


def off(found, exact):
    """Return the relative error of a gradient."""
    found, exact = (np.concatenate([a.ravel() for a in tc.tree.leaves(t)]) for t in (found, exact))
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def mean_off(chance, count):
    """Return the relative error of the mean of some gradients."""
    return off(np.mean([read_back(h, 4, chance)[0].T @ g for _ in range(count)], 0), h.T @ g)


print(f"relative error: nearest {mean_off(False, 1):.1%}, stochastic {mean_off(True, 1):.1%}")

# %% [markdown]
# **Predict.** But training takes many steps, and their sum is what counts. Take the mean of 64 such
# gradients. By how many percent is that off, with stochastic rounding?

# %%
my_guess = viz.ask("The mean of 64, stochastic rounding: how many percent off?", 0.0)

# %%
nearest, chance = mean_off(False, 64), mean_off(True, 64)
print(f"you said {my_guess}; it is {100 * chance:.2f}, an eighth: the root of 64")
print(f"to nearest it is {100 * nearest:.1f}, as before")

# %% [markdown]
# *Variance* averages out, *bias* does not. So the less exact rounding is the better one.
#
# `tc.compressed(x, bits)` is x, but derivatives read a quantised copy; `tc.with_compression`
# applies it to all that a network saves. The loss stays exact, and takes a seed, another one in
# each step.

# %%
net = tc.networks.gpt2(2, 64, 2, 32, 4, vocabulary=64, positions=32, fused=True)
params, *data = net.arrays()
exact, value = tc.grad(net.loss)(params, *data), tc.jit(net.loss)(params, *data)


def kept(network):
    return sum(v.nbytes for v in tc.saved_values(network.graph()) if v.role == "activation")


ways = {}
for group in (16, 256):
    for bits in (8, 4, 2):
        coded = tc.with_compression(net, bits=bits, group=group)
        assert tc.jit(coded.loss)(params, *data, 0) == value
        error = off(tc.grad(coded.loss)(params, *data, 0), exact)
        ways.setdefault(f"groups of {group}", []).append((f"{bits} bits", kept(coded), error))
        print(f"groups of {group:3}, {bits} bits: {kept(coded) / kept(net):5.1%} saved, ", end="")
        print(f"gradient error {error:.1%}")
print(viz.gradient_error(ways, OUT / "17_error.png", exact=kept(net)))

# %% [markdown]
# Some bias remains. Quantised values are unbiased, and so are derivatives that read them linearly,
# as products do. But a norm's derivative multiplies them, and a softmax's exponentiates them.

# %%
slope = tc.grad(tc.with_compression(net, bits=4).loss)
draws = [tc.tree.leaves(slope(params, *data, seed)) for seed in range(64)]
one, mean = off(draws[0], exact), off([sum(each) / 64 for each in zip(*draws, strict=True)], exact)
print(f"4 bits: one gradient is off by {one:.1%}, the mean of 64 by {mean:.1%}")

# %% [markdown]
# The error is small enough to train: a small ViT, fine-tuned on digits, got 79.8 % right with 8
# bits and 79.1 % with 4, instead of 79.9 %, on average over 5 seeds
# (benchmarks/results/fine_tuning.md).
#
# A quantised copy is an ordinary value: it can be evicted and recomputed, bitwise equal since its
# seed is the same, or offloaded (lesson 15). All within one budget:

# %%
deep = tc.networks.mlp(16, 64, batch=2048, dtype="float32")
graph = tc.with_compression(deep, bits=4).graph()
plain, coded = tc.replay(tc.plan(deep.graph())), tc.replay(tc.plan(graph))
both = tc.replay(tc.plan(graph, budget=coded.peak_bytes - 2**18, time_limit=4))
for name, trace in {"exact": plain, "4 bits": coded, "in a budget": both}.items():
    print(f"{name:11} peak {trace.peak_bytes / 2**20:.2f} MiB, {trace.recomputations} recomputed")
print(viz.player(both, OUT / "17_player.html"))

# %%
assert abs(errors["nearest"]).max() <= 0.5 < abs(errors["stochastic"]).max() <= 1
assert all((error**2).mean() <= 0.25 for error in errors.values())
assert abs(errors["stochastic"].mean()) < 1e-3
assert chance < mean_off(True, 1) / 6
assert np.isclose(nearest, mean_off(False, 1))
assert one / 8 < mean < one / 2
arrays = deep.arrays()
results = [tc.run(trace.schedule, *arrays, 0).gradients for trace in (coded, both)]
assert all(map(np.array_equal, *map(tc.tree.leaves, results)))
