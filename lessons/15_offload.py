# %% [markdown]
# # 15. Offload: where bandwidth beats FLOPs
#
# So far, values that did not fit were recomputed. They can also be moved: the host has more memory
# than the device, and copy engines work *concurrently* with computation. A copy is free as long as
# computation does not stall for it. When does it?

# %%
from fractions import Fraction
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
VALUE = 512  # bytes of each value of the chain

# %% [markdown]
# The chain again, with the relative times of matrix products: 1 for a layer, 2 for its adjoint.

# %%
chain = tc.networks.chain(16)
costs = tc.cost.custom(chain, [1] * 17 + [2] * 16, "units")
stored, halved = (tc.plan(chain, policy) for policy in ("store_all", "sqrt_n"))
room = tc.replay(halved).peak_bytes
for schedule in (stored, halved):
    peak, time = tc.replay(schedule).peak_nodes, tc.cost.cost_of(schedule, costs)
    print(f"{schedule.policy:9} peak {peak:2} values, {time:.0f} units of time")

# %% [markdown]
# Now offload instead. Each f is offloaded right after the next layer has read it, and fetched just
# in time for its adjoint. `replay` counts bytes and has no clock; `tc.timed` has both, and counts
# the memory of copies in flight. Let a copy take as long as a layer:


# %%
def moved(duration):
    """Offload every value that the backward pass reads, within the peak of sqrt(n)."""
    link = tc.Link(bandwidth=VALUE / Fraction(duration))
    given = {"bandwidth": link.bandwidth, "budget": room}
    schedule = tc.plan(chain, "offload", costs=costs, **given)
    return tc.timed(schedule, link, costs, budget=room)


free, slow = moved(1), moved(2)
print(free.summary(), slow.summary(), sep="\n")
print(viz.timeline([free, slow], OUT / "15_overlap.png", title=["copies take 1", "copies take 2"]))

# %% [markdown]
# A peak of 4 values instead of 18, in the time of store-all: no recomputation and no stall. Over
# the slower link, computation stalls. Each copy records the stall that it causes:

# %%
for kind in (tc.Offload, tc.Fetch):
    waits = [w for s, w in zip(slow.schedule.steps, slow.stall, strict=True) if type(s) is kind]
    print(f"{kind.__name__:7} {len(waits)} copies, stall of {sum(waits)} units")

# %% [markdown]
# The forward pass stalls for offloads, since there is no room for a further layer. And the value
# that is offloaded last is needed first: the backward pass stalls until it is out and back. After
# that nothing stalls; an adjoint takes as long as a copy.
#
# **Predict.** sqrt(n) recomputes 9 layers and takes 58 units; store-all takes 49. Moving a value
# takes two copies, out and back. Up to which duration of a copy, in units of a layer, is offload as
# fast as sqrt(n)?

# %%
my_guess = viz.ask("As fast as sqrt(n) up to which duration of a copy?", 0.0)

# %%
low, high = Fraction(0), Fraction(8)
while high - low > Fraction(1, 64):
    middle = (low + high) / 2
    low, high = (middle, high) if moved(middle).makespan <= 58 else (low, middle)
print(f"you said {my_guess}; it is {float(low):.2f}")

# %% [markdown]
# Two copies per evaluation would make it 1/2. But offloads overlap with the forward pass, and
# fetches with the backward pass, which is twice as long. Up to 1 all of it is free. At 2 the
# offloads take as long as two forward passes: the stall equals recomputing every layer. Beyond 2,
# the backward pass stalls for every fetch, too.
#
# The choice can differ per value. `plan_with_host` decides for each whether to keep, offload or
# recompute it, in the same memory:

# %%
durations, mixed = [Fraction(n, 8) for n in (1, 4, 8, 10, 12, 14, 16, 20, 24, 32)], {}
for duration in durations:
    link = tc.Link(VALUE / duration)
    plan = tc.plan_with_host(chain, link, budget=room, costs=costs, time_limit=4)
    mixed[duration] = tc.timed(plan, link, costs, budget=room).makespan
    print(f"{float(duration):5}: {float(mixed[duration]):6.2f} units, {plan.note}")

# %% [markdown]
# A copy takes bytes / bandwidth, and a layer FLOPs / throughput. So compare the FLOPs per byte
# moved with the FLOPs that the machine executes while it moves a byte. Where the first number is
# above the second, offload is free. Blocks of transformers at 16 bits, of which all saved values
# are moved, or the input alone; and a device of 150 TFLOP/s, with 25 GB/s each way:


# %%
def of_a_block(width, length=1024):
    found = []
    for layers in (1, 2):  # the difference is one block's
        sizes = {"heads": width // 64, "length": length, "vocabulary": 64, "dtype": "float16"}
        graph = tc.networks.gpt2(layers, width, fused=True, **sizes).graph()
        forward = graph.operators[: graph.forward_count]
        kept = sum(node.nbytes for node in tc.saved_values(graph) if node.role == "activation")
        found.append((sum(operator.flops for operator in forward), kept))
    work, kept = (two - one for one, two in zip(*found, strict=True))
    return work / kept, work / (2 * length * width)


machine, widths = 150e12 / 25e9, [768, 1536, 3072, 6144, 12288]
per_byte = {width: of_a_block(width) for width in widths}
for width, (all_kept, of_input) in per_byte.items():
    print(f"width {width:5}: {all_kept:6.0f} FLOPs per saved byte, {of_input:7.0f} per input byte")
print(f"the machine: {machine:.0f} FLOPs per byte moved")

# %%
figure = Figure(figsize=(9, 3.4), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(durations, [moved(d).makespan for d in durations], "o-", label="all offloaded")
left.plot(durations, list(mixed.values()), "s-", label="chosen per value")
left.axhline(58, color="C3", ls="--", label="sqrt(n)")
left.axhline(49, color="0.5", ls=":", label="store-all")
left.axvline(float(low), color="0.8", zorder=0)
left.set(xlabel="duration of a copy, in layers", ylabel="units of time", ylim=(45, 90))
right.loglog(widths, [a for a, _ in per_byte.values()], "o-", label="all saved values of a block")
right.loglog(widths, [i for _, i in per_byte.values()], "s-", label="its input alone")
right.axhline(machine, color="C3", ls="--", label="the machine: above it, offload is free")
right.set(xlabel="width of the transformer", ylabel="FLOPs per byte moved")
for axis in (left, right):
    axis.legend(frameon=False, fontsize=8)
figure.savefig(OUT / "15_break_even.png", dpi=150)
print(OUT / "15_break_even.png")
print(viz.player(tc.replay(slow.schedule), OUT / "15_player.html"))

# %%
assert (free.makespan, free.stalled, tc.replay(free.schedule).peak_bytes) == (49, 0, 4 * VALUE)
assert (slow.makespan, slow.peak_bytes) == (64, room)
assert Fraction(3, 2) < low < Fraction(7, 4)
assert all(mixed[d] <= min(moved(d).makespan, 58) for d in durations)
assert per_byte[768][0] < machine < per_byte[12288][0]
x = np.linspace(-1, 1, 64).reshape(8, 8)  # offload changes no bits
assert np.array_equal(tc.run(free.schedule, x).gradients, tc.run(stored, x).gradients)
