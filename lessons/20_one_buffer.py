# %% [markdown]
# # 20. One buffer: why 10 GiB free is not enough
#
# "Tried to allocate 2 GiB; 10 GiB is reserved but unallocated." Live bytes are what a schedule
# needs if memory had no addresses. But every value needs a *range* of addresses, and nothing moves
# while it is live. What does that cost, and who could avoid it?

# %%
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# Ten cells of memory. The values a, b and c are allocated one after another; then a and c are
# freed. Where can d go, which needs six cells?


# %%
def drawn(places, size=10):
    cells = ["."] * size
    for name, (start, extent) in places.items():
        cells[start : start + extent] = name * extent
    return "".join(cells)


places = {"a": (0, 4), "b": (4, 2), "c": (6, 4)}
print(drawn(places))
del places["a"], places["c"]
print(drawn(places), "eight cells free, and no six in one piece")

# %% [markdown]
# That is *fragmentation*. With b at one end there would have been room for d. But an allocator
# learns of d when it is asked for it, and of b's end when b is freed.
#
# PyTorch's allocator for GPUs keeps what it has. It asks the driver for a *segment*: of 2 MiB for
# requests of up to 1 MiB, of 20 MiB for those below 10 MiB, and for a larger request one of its
# size, rounded up to 2 MiB. Later requests, rounded up to 512 bytes, get the smallest free block of
# their kind of segment that is large enough. The rest of the block stays free (of a large one, if
# more than 1 MiB is left), and free neighbours in one segment are merged. `tc.reserved` replays a
# schedule on these rules.
#
# A ResNet-18 with eight images, under sqrt(n):

# %%
graph = tc.networks.resnet(18, 8).graph()
schedule = tc.plan(graph, "sqrt_n")
live = tc.replay(schedule).peak_bytes
print(f"{len(schedule)} steps, at most {live / 2**20:.0f} MiB live")
print(viz.player(tc.replay(schedule), OUT / "20_player.html"))

# %% [markdown]
# **Predict.** How many MiB does the allocator reserve for this step, from empty?

# %%
my_guess = viz.ask("How many MiB are reserved?", 0)

# %%
caching = tc.reserved(schedule)
print(f"you said {my_guess}; it is {caching.nbytes >> 20}")

# %% [markdown]
# Half as much again as is ever live. Each segment records why it was reserved. Of the requests that
# would have fitted in one piece, the largest:

# %%
fragmented = [segment for segment in caching.segments if segment.is_fragmented]
worst = max(fragmented, key=lambda segment: segment.needed)
for name in ("needed", "free", "largest_free"):
    print(f"{name:12} {getattr(worst, name) / 2**20:5.1f} MiB")
print(viz.memory_map(schedule, OUT / "20_caching.svg", allocator="caching"))

# %% [markdown]
# Three times the request is free, in pieces that are too small. In the map, address is vertical and
# time horizontal: each value is a rectangle; what is empty is a hole.
#
# A schedule knows the future: which value is live from when to when. So all addresses can be
# planned at once. That is packing rectangles whose horizontal position is given into the least
# height (*dynamic storage allocation*: NP-hard, as bin packing is). No packing is lower than the
# peak of live bytes; `tc.arena` tries orders that the literature has, and says when it got there.

# %%
arena = tc.arena(schedule)
print(arena)
print(viz.memory_map(schedule, OUT / "20_arena.svg"))
heights = {}
for policy in ("store_all", "sqrt_n", "recompute_all"):
    other = tc.plan(graph, policy)
    sizes = tc.replay(other).peak_bytes, tc.arena(other).nbytes, tc.reserved(other).nbytes
    heights[policy] = sizes
    live_peak, planned, reserved = (size / 2**20 for size in sizes)
    print(f"{policy:14}{live_peak:6.1f} live, {planned:6.1f} arena, {reserved:6.1f} caching MiB")

# %% [markdown]
# Here the packing reaches the peak, which is not always possible, and nothing is lost to holes.
# Without a plan, both policies that recompute need a larger share on top than store-all.
#
# A program can run at these addresses. `tc.compile` with `arena=True` makes one buffer, a view of
# it for each evaluation, and lines that write into their place:

# %%
chain = tc.plan(tc.networks.chain(4), "sqrt_n")
program = tc.compile(chain, arena=True)
print(program.source.partition("\n\ndef ")[2])

# %% [markdown]
# `f1` is computed twice, at two addresses. No line allocates but the last, whose result is the
# caller's to keep; and no gradient changes by a bit.

# %%
x = np.linspace(-1, 1, 64).reshape(8, 8)
expected = tc.compile(chain)(x)[1]
assert all(np.array_equal(program(x)[1], expected) for _ in range(3))
assert caching.nbytes > 1.4 * live
assert worst.needed < worst.free
assert worst.largest_free < worst.needed
assert all(peak <= planned < 1.0001 * peak for peak, planned, _ in heights.values())
shares = [reserved / peak for peak, _, reserved in heights.values()]
assert shares[0] == min(shares)
assert program.arena.nbytes <= tc.replay(chain).peak_bytes
