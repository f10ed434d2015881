# %% [markdown]
# # 13. Where a transformer's activations go
#
# A widely quoted formula: a transformer layer stores **sbh (34 + 5as/h)** bytes for its backward
# pass, at 16 bits, with s tokens, a batch of b, a heads and a width of h. Korthikanti et al.,
# "Reducing activation recomputation in large transformer models", arXiv 2205.05198, section 4. Here
# a graph yields it term by term; and with the terms, how to reduce them.

# %%
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
s, b, a, h = 2048, 1, 96, 12288  # GPT-3
SBH = s * b * h

# %% [markdown]
# First dropout. The paper's saves its mask, one byte per element; ours regenerates it (lesson 12).
# So here are both. `tc.name` only gives a value the name that the table below prints.


# %%
def saves_its_mask(x, seed):
    mask = tc.name(tc.dropout(tc.ones(x.shape, x.dtype), 0.1, seed) > 0, "mask")
    return tc.where(mask, x * (1 / 0.9), 0)


def draws_its_mask(x, seed):
    return tc.dropout(x, 0.1, seed)


# %% [markdown]
# The *core* of attention: weights from queries and keys, softmax, dropout, weighted values. Between
# the products with weights, each head has a part of the width to itself.


# %%
def core(q, k, v, dropout):
    scaled = tc.name(q * (h // a) ** -0.5, "q, scaled")
    weights = tc.name(tc.causal_softmax(scaled @ k.mT), "softmax")
    return tc.name(dropout(weights, 1), "dropout of softmax") @ v


def split_in_heads(x):
    return x.reshape((b, s, a, h // a)).transpose((0, 2, 1, 3))


def merged(x):
    return x.transpose((0, 2, 1, 3)).reshape(b * s, h)


# %% [markdown]
# The layer is two blocks, each added to what it reads. `attend` is the core, or what we put in its
# place later on.


# %%
def attention_block(p, x, attend, dropout):
    read = tc.name(tc.layer_norm(x, p["scale"], p["shift"]), "input of q, k, v")
    q = split_in_heads(read @ p["q"])
    k = split_in_heads(tc.name(read @ p["k"], "k"))
    v = split_in_heads(tc.name(read @ p["v"], "v"))
    return dropout(merged(attend(q, k, v, dropout)) @ p["out"], 2)


def wide_block(p, x, dropout):
    read = tc.name(tc.layer_norm(x, p["scale"], p["shift"]), "input of fc1")
    wide = tc.gelu(tc.name(read @ p["fc1"], "input of gelu"))
    return dropout(tc.name(wide, "input of fc2") @ p["fc2"], 3)


def layer(p, x, attend, dropout):
    x = tc.name(x + attention_block(p, x, attend, dropout), "input of norm")
    return tc.name(x + wide_block(p, x, dropout), "input of norm")


# %% [markdown]
# A network of some layers, from shapes alone. Of two layers, count what the second saves: the
# values that its part of the backward pass reads.


# %%
def network(layers, attend=core, dropout=saves_its_mask, whole=False):
    """Return the training graph; if ``whole``, each layer is a region that is recomputed."""
    shapes = {"q": (h, h), "k": (h, h), "v": (h, h), "out": (h, h), "scale": h, "shift": h}
    shapes |= {"fc1": (h, 4 * h), "fc2": (4 * h, h)}
    p = {name: tc.Spec(shape, "float16") for name, shape in shapes.items()}
    one = partial(layer, attend=attend, dropout=dropout)
    if whole:
        one = tc.checkpoint(one)

    def loss(params, x):
        for number, p in enumerate(params, start=1):
            with tc.scope(f"layer{number}"):
                x = one(p, x)
        return tc.sum(x)

    return tc.differentiate(tc.build(loss, [p] * layers, tc.Spec((b * s, h), "float16")))


training = network(2)
account = []
for value in tc.saved_values(training):
    reader = training.operators[training.consumers[value.id][0]]
    if reader.scope == "layer2":
        account.append(value)
        print(f"{value.nbytes / SBH:8.4f} sbh  {value.label or value.name}, {value.spec}")
total = sum(value.nbytes for value in account) / SBH
print(f"{total:8.4f} sbh; the formula says {34 + 5 * a * s / h}")

# %% [markdown]
# Exact to the byte, except 16 bytes per token: mean and deviation of two norms in float32, which
# the paper neglects. Of 114, 5as/h = 80 are the *core* of attention, softmax and dropout of s²
# weights per head: 70.2 %, and cheap to recompute from q and k. The paper calls recomputing only
# the core **selective**; `tc.checkpoint` around the core expresses it.
#
# **Predict.** By how many percent do the FLOPs of a training step rise if the core, 70.2 % of the
# bytes, is recomputed? (Recomputing whole layers takes a forward pass, less its unread values:
# 23 %.)

# %%
my_guess = viz.ask("By how many percent do the FLOPs rise?", 0.0)


# %%
def fused(q, k, v, dropout):
    return tc.attention(q, k, v, causal=True, fused=True)


def traced(layers, policy, options):
    """Return the trace of a network, the most bytes of activations in it, and its FLOPs."""
    training = network(layers, **options)
    schedule = tc.plan(training, policy)
    trace = tc.replay(schedule)
    return trace, max(trace.activation), tc.cost.cost_of(schedule, tc.cost.flops(training))


forms = {
    "store all": ("store_all", {}),
    "mask recomputed": ("store_all", {"dropout": draws_its_mask}),
    "selective": ("regions", {"attend": tc.checkpoint(core)}),
    "fused attention": ("store_all", {"attend": fused}),
    "whole layers": ("regions", {"whole": True}),
}
held, work, traces = {}, {}, {}
for name, (policy, options) in forms.items():
    _, two, flops_of_two = traced(2, policy, options)
    traces[name], three, flops_of_three = traced(3, policy, options)
    held[name], work[name] = (three - two) / SBH, flops_of_three - flops_of_two  # of one layer
    print(f"{name:16} {held[name]:8.4f} sbh", end=" ")
    print(f"{held[name] * SBH * 96 / 2**30:6.1f} GiB in 96 layers", end=" ")
    print(f"{work[name] / work['store all'] - 1:+6.2%} FLOPs")
extra = work["selective"] / work["store all"] - 1
print(f"you said {my_guess}; it is {extra:.2%}")

# %% [markdown]
# Half a percent; and during a layer's backward pass its core is resident as well. The paper says
# 2.7 %, which is s/(6h). The two products of the core are 4bs²h of 72bsh²(1 + s/(6h)) FLOPs, 0.9 %;
# and only the first is recomputed, since the second's result is saved. "Checkpoint what is
# expensive to compute" is backwards: recompute what is large and cheap.
#
# Fused attention is one operator that computes the weights block by block, forward and backward,
# and stores none (here, without dropout of them). It saves q, k, v, its result in two layouts and
# one number per row and head, and skips masked entries: less work, not more (docs/attention.md).
# The player, of three layers, opens where a core is computed again, with 4.4 GiB of activations at
# most instead of 8.2; the peak comes later, of gradients and the workspace of dropout's numbers.

# %%
axis = (figure := Figure(figsize=(7, 2.6), layout="constrained")).subplots()
axis.bar_label(axis.barh([*held][::-1], [*held.values()][::-1]), fmt="%.0f", padding=3)
axis.set(xlabel="sbh per layer", title="Saved values of a layer of GPT-3's shape", xlim=(0, 130))
figure.savefig(OUT / "13_activations.png", dpi=150)
print(OUT / "13_activations.png")
shown = {"title": "3 layers, selective", "stop": "first recomputation"}
print(viz.player(traces["selective"], OUT / "13_player.html", **shown))

# %%
norms, row = 16 * b * s / SBH, 4 * a * s * b / SBH
assert total == 34 + 5 * a * s / h + norms
assert list(held.values()) == [114 + norms, 96 + norms, 34 + norms, 36 + norms + row, 2]
assert round(100 * 5 * a * s / h / (34 + 5 * a * s / h), 1) == 70.2
assert round(100 * extra, 2) == 0.47
assert [round(max(traces[name].activation) / 2**30, 1) for name in forms][::2][:2] == [8.2, 4.4]
assert work["fused attention"] < work["mask recomputed"] < work["store all"]
