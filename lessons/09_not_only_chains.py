# %% [markdown]
# # 9. General graphs
#
# Real networks have skip connections, branches, and values of very different size and cost. That
# raises three questions that a uniform chain does not: where to cut, what to keep, and how to
# specify it. At the end, a network of real size.

# %%
from pathlib import Path

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
MIB = 2**20

# %% [markdown]
# **Where to cut.** A *separator* (dominator) is a value on every path from the operators before it
# to the loss: keep it, and nothing else from before is needed. In a chain each value is one. In a
# residual net the skip connection bypasses the block, so there is none inside a block (except in
# the first, which starts from the input). In a U-Net the decoder reads the encoder's values again:
# there are none except at the two ends.

# %%
residual = tc.networks.residual_mlp(4, 32).graph()
unet = tc.networks.unet(8)
for graph in (tc.networks.chain(8), residual, unet):
    values = [graph.data[data] for data in tc.separators(graph)]
    print(f"{graph.name}: {len(values)} separators, {graph.forward_count} forward operators")
    print("   ", ", ".join(value.name for value in values))
    print("    sqrt_n:", tc.plan(graph, "sqrt_n").note)

# %% [markdown]
# Without a separator one can still cut, by keeping *all* values that cross, as the last line shows.
# The result is a chain of stages again, so every policy of the previous lessons applies.
#
# **What to keep.** "Keep what is expensive to compute." Here are the most expensive values of one
# layer of a small transformer, with the cost of computing each from its inputs:

# %%
model = tc.networks.transformer(4, 128, heads=8, length=256, batch=4, vocabulary=512).graph()
layer = [o for o in model.operators[: model.forward_count] if o.scope.startswith("layer2")]
layer.sort(key=lambda operator: -operator.flops)
print("made by      MiB    MFLOP  FLOP/byte")
for operator in layer[:9]:
    node = model.data[operator.outputs[0]]
    print(f"{operator.name:10} {node.nbytes / MIB:5.1f} {operator.flops / 1e6:8.1f}", end=" ")
    print(f"{operator.flops / node.nbytes:10.1f}  {operator.scope} {node.label or ''}")

# %% [markdown]
# The matrix products are expensive for their size. But `matmul_8`, queries times keys, is by far
# the largest of them. JAX has a policy for either choice: `dots_saveable` keeps all products and
# recomputes the rest; `dots_with_no_batch_dims_saveable` keeps the products with weights, but not
# those inside the attention, which have batch dimensions.

# %% [markdown]
# **Predict.** Store-all has a peak of 81 MiB. `dots_saveable` keeps 25 of 206 values, the products.
# What is its peak, in MiB?

# %%
my_guess = viz.ask("dots_saveable: how many MiB at the peak?", 0)

# %%
rules = {
    "everything_saveable": (),
    "nothing_saveable": (),
    "dots_saveable": (),
    "dots_with_no_batch_dims_saveable": (),
    "save_anything_except_these_names": ["attention_scores"],
    "save_only_these_names": ["residual"],
}
found = {}
for rule, names in rules.items():
    trace = tc.replay(tc.plan(model, "saveable", rule=rule, names=names))
    done = [model.operators[s.operator].flops for s in trace.steps if isinstance(s, tc.Compute)]
    share = sum(done) / sum(operator.flops for operator in model.operators)
    found[rule] = round(trace.peak_bytes / MIB, 1)
    print(f"{found[rule]:5.1f} MiB, {share:.2f} of store-all's FLOPs: {rule} {', '.join(names)}")
print(f"you said {my_guess}; it is {found['dots_saveable']}")

# %% [markdown]
# Without the products inside the attention it is 41.3, for little more work. The criterion is cost
# *per byte*, not cost: recompute what is large and cheap (attention core, activation functions,
# norms), keep what is small and expensive. Two more traps: excluding the attention scores alone
# saves nothing, since the sums that they are computed from are as large and are saved instead; and
# `nothing_saveable` on a whole model recomputes everything at once, and then stores it.
#
# **How to specify it.** `tc.checkpoint` marks functions whose interior is recomputed, as
# `torch.utils.checkpoint` and `jax.checkpoint` do; the policy `regions` follows the marks. 64
# layers: as one region, as 8 regions, and as 4 regions with 4 more in each.


# %%
def repeated(function, times):
    def net(h):
        for _ in range(times):
            h = function(h)
        return h

    return net


inner = tc.checkpoint(repeated(tc.tanh, 4))
nets = {
    "no region": repeated(tc.tanh, 64),
    "one region": tc.checkpoint(repeated(tc.tanh, 64)),
    "per block": repeated(tc.checkpoint(repeated(tc.tanh, 8)), 8),
    "nested": repeated(tc.checkpoint(repeated(inner, 4)), 4),
}
counts = {}
for name, net in nets.items():
    loss = tc.build(lambda x, net=net: tc.half_squared_norm(net(x)), tc.Spec((8, 8)))
    trace = tc.replay(tc.plan(tc.differentiate(loss), "regions"))
    counts[name] = (trace.peak_nodes, trace.recomputations)
    print(f"{name:10}  peak {counts[name][0]} values, {counts[name][1]} recomputations")

# %% [markdown]
# One region around everything saves nothing, and costs a whole forward pass. Wrap each block;
# nested, this is the recursion of lesson 6, written by hand.
#
# Or specify only the budget. ResNet-50, batch 32, in half of store-all's peak, by FLOPs; among
# others this tries `rotor` (the optimum of a chain with unequal stages) and `greedy` (evict what is
# cheap per byte and not needed soon). The optimum is NP-hard to find; the certificate bounds the
# gap.

# %%
resnet = tc.networks.resnet50(32)
flops = tc.cost.flops(resnet)
stored = tc.replay(tc.plan(resnet)).peak_bytes
schedule = tc.plan(resnet, budget=0.5, costs=flops, time_limit=3.0)
half = tc.replay(schedule)
print(f"store-all {stored / MIB:.0f} MiB, now {half.peak_bytes / MIB:.0f} MiB, {schedule.policy}")
print(schedule.certificate)

# %% [markdown]
# **Challenge.** The small transformer within 38 MiB, with FLOPs as costs. Five kinds of values have
# labels; or name single values on the page. Which do you keep?

# %%
asked = {"costs": tc.cost.flops(model), "time_limit": 1.0}
print(viz.lab(model, OUT / "09_lab.html", challenge="38 MiB", **asked))

# %%
labels = ["attention_scores", "attention_out", "mlp_hidden", "mlp_out", "residual"]
my_choice = viz.ask(f"Which of {', '.join(labels)}?", ("attention_scores",), among=labels)

# %%
mine = tc.plan(model, "retain", keep=my_choice)
print(f"you said {my_choice}; it is {viz.challenge(mine, '38 MiB', **asked)}")

# %%
small = tc.networks.branching(3, 8).graph()
pair = [tc.replay(tc.plan(small)), tc.replay(tc.plan(small, budget=0.8))]
print(viz.gif(pair, OUT / "09_branching.gif"))
print(viz.player([half], OUT / "09_player.html"))

# %%
assert [len(tc.separators(graph)) for graph in (residual, unet)] == [12, 14]
assert list(found.values()) == [81.4, 81.4, 66.5, 41.3, 81.4, 30.9]
assert list(counts.values()) == [(67, 0), (67, 63), (18, 56), (13, 96)]
assert 2 * half.peak_bytes <= stored
assert schedule.certificate.lower_bound <= schedule.certificate.cost
