# %% [markdown]
# # 13. Where a transformer's activations go
#
# A widely quoted formula: a transformer layer stores **sbh (34 + 5as/h)** bytes for its backward
# pass, at 16 bits, with s tokens, a batch of b, a heads and a width of h. Korthikanti et al.,
# "Reducing activation recomputation in large transformer models", arXiv 2205.05198, section 4. Here
# a graph yields it term by term; and with the terms, how to reduce them.

# %%
from pathlib import Path

from matplotlib.figure import Figure

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
s, b, a, h = 2048, 1, 96, 12288  # GPT-3
SBH = s * b * h
heads, turn = (b, s, a, h // a), (0, 2, 1, 3)

# %% [markdown]
# The layer of the paper. Its dropout saves the mask, one byte per element; ours regenerates it
# (lesson 12). So here are both.


# %%
def keeping_the_mask(x, seed):
    mask = tc.name(tc.dropout(tc.ones(x.shape, x.dtype), 0.1, seed) > 0, "mask")
    return tc.where(mask, x * (1 / 0.9), 0)


def drawing_the_mask(x, seed):
    return tc.dropout(x, 0.1, seed)


def core(q, k, v, dropout):
    weights = tc.name(tc.causal_softmax((q * (h // a) ** -0.5) @ k.mT), "softmax")
    return tc.name(dropout(weights, 1), "dropout of softmax") @ v


def layer(p, x, attend, dropout):
    joint = tc.name(tc.layer_norm(x, p["scale"], p["shift"]), "input of q, k, v")
    q, k, v = (tc.name(joint @ p[part], part).reshape(heads).transpose(turn) for part in "qkv")
    mixed = attend(q, k, v, dropout).transpose(turn).reshape(b * s, h)
    x = tc.name(x + dropout(mixed @ p["out"], 2), "input of norm")
    hidden = tc.name(tc.layer_norm(x, p["scale"], p["shift"]), "input of fc1") @ p["fc1"]
    wide = tc.name(tc.gelu(tc.name(hidden, "input of gelu")), "input of fc2")
    return tc.name(x + dropout(wide @ p["fc2"], 3), "input of norm")


# %%
def graph(layers, attend=core, dropout=keeping_the_mask, around=lambda function: function):
    def net(params, x):
        for number, p in enumerate(params, start=1):
            with tc.scope(f"layer{number}"):
                x = around(lambda x, p=p: layer(p, x, attend, dropout))(x)
        return tc.sum(x)

    shapes = {"q": (h, h), "k": (h, h), "v": (h, h), "out": (h, h), "scale": h, "shift": h}
    shapes |= {"fc1": (h, 4 * h), "fc2": (4 * h, h)}
    p = {name: tc.Spec(shape, "float16") for name, shape in shapes.items()}
    return tc.differentiate(tc.build(net, [p] * layers, tc.Spec((b * s, h), "float16")))


def kept(training):
    """Return the forward values that the adjoints of layer 2 read."""
    adjoints = [o for o in training.operators if o.phase == "backward" and "layer2" in o.scope]
    found = {}
    for data in [data for operator in adjoints for data in operator.inputs]:
        node = training.data[data]
        while node.view_of is not None:  # a view shares the memory of its base
            node = training.data[node.view_of]
        if node.role == "activation":
            found[node.name] = node
    return [found[name] for name in sorted(found, key=lambda name: found[name].id)]


account = kept(graph(2))
for node in account:
    print(f"{node.nbytes / SBH:8.4f} sbh  {node.label or node.name}, {node.spec}")
total = sum(node.nbytes for node in account) / SBH
print(f"{total:8.4f} sbh; the formula says {34 + 5 * a * s / h}")

# %% [markdown]
# Exact to the byte, except 16 bytes per token: mean and deviation of two norms in float32, which
# the paper neglects. Of 114, 5as/h = 80 are the *core* of attention, softmax and dropout of s²
# weights per head: 70.2 %, and cheap to recompute from q and k. The paper calls recomputing only
# the core **selective**; `tc.checkpoint` around the core expresses it.
#
# **Predict.** By how many percent do the FLOPs of a training step rise if these 70.2 % are
# recomputed? (Recomputing whole layers takes a forward pass, less its unread values: 23 %.)

# %%
my_guess = viz.ask("By how many percent do the FLOPs rise?", 0.0)


# %%
def fused(q, k, v, dropout):
    return tc.attention(q, k, v, causal=True, fused=True)


forms = {
    "store all": ("store_all", {}),
    "mask recomputed": ("store_all", {"dropout": drawing_the_mask}),
    "selective": ("regions", {"attend": tc.checkpoint(core)}),
    "fused attention": ("store_all", {"attend": fused}),
    "whole layers": ("regions", {"around": tc.checkpoint}),
}
held, work, traces = {}, {}, {}
for name, (policy, options) in forms.items():
    most, flops = [], []
    for layers in (2, 3):  # the difference is one layer's
        trace = traces[name] = tc.replay(tc.plan(graph(layers, **options), policy))
        done = [trace.graph.operators[o.operator] for o in trace.steps if isinstance(o, tc.Compute)]
        flops.append(sum(operator.flops for operator in done))
        most.append(max(trace.activation))
    held[name], work[name] = (most[1] - most[0]) / SBH, flops[1] - flops[0]
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

# %%
axis = (figure := Figure(figsize=(7, 2.6), layout="constrained")).subplots()
axis.bar_label(axis.barh(list(held), list(held.values())), fmt="%.0f", padding=3)
axis.set(xlabel="sbh per layer", title="Saved values of a layer of GPT-3's shape", xlim=(0, 130))
axis.invert_yaxis()
figure.savefig(OUT / "13_activations.png", dpi=150)
print(OUT / "13_activations.png", viz.player(traces["selective"], OUT / "13_player.html"))

# %%
norms, row = 16 * b * s / SBH, 4 * a * s * b / SBH
assert total == 34 + 5 * a * s / h + norms
assert list(held.values()) == [114 + norms, 96 + norms, 34 + norms, 36 + norms + row, 2]
assert round(100 * 5 * a * s / h / (34 + 5 * a * s / h), 1) == 70.2
assert round(100 * extra, 2) == 0.47
assert work["fused attention"] < work["mask recomputed"] < work["store all"]
