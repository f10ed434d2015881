# %% [markdown]
# # 6. The recursion
#
# sqrt(n) keeps the values between segments, and goes back through a segment with all its values
# kept. But a segment is a chain too. Why not checkpoint it as well, and its parts, and theirs?
#
# Chen, Xu, Zhang and Guestrin, arXiv 1604.06174, section 4.4: keep k values, which leaves parts of
# n/(k+1) layers, and do the same in each part: memory g(n) = k + g(n/(k+1)). With k = 1 this is
# bisection: O(log n) values, for O(n log n) evaluations.

# %%
from math import isqrt
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# It is short enough to be written here. Go back from f(last-1) to f(first), where the value of
# f(first) is in memory (f0 is the input): advance to the middle, go back through the second half,
# then through the first. Where one value is left, its adjoint is due.


# %%
def back(first, last, n):
    """Return the names of the operators that go back from layer last-1 to layer first."""
    if last - first == 1:
        if first == n:
            return ["l", f"b{n}"]
        return [f"b{first}"] if first else []
    middle = (first + last) // 2
    advance = [f"f{layer}" for layer in range(first + 1, middle + 1)]
    return advance + back(middle, last, n) + back(first, middle, n)


# %% [markdown]
# **Predict.** Do it by hand, for 7 layers: how often is f1 evaluated, and how often f5?

# %%
my_times = viz.ask("7 layers, halved: how often f1, how often f5?", (0, 0))

# %%
names = back(0, 8, 7)
print(" ".join(names))
print(f"you said {my_times}; it is {(names.count('f1'), names.count('f5'))}")

# %% [markdown]
# Read it: forward to f7 and back to b6; f5 comes a second time; so do f1, f2, f3; and f1 a third.

# %% [markdown]
# A policy is a function from a graph to an order of evaluations. `tc.from_order` frees each value
# behind its last reader, so that the order is all we have to think about.


# %%
def bisection(graph, costs):
    ids = {operator.name: operator.id for operator in graph.operators}
    n = graph.forward_count
    return tc.from_order(graph, [ids[name] for name in back(0, n + 1, n)], "bisection")


chain = tc.networks.chain(15)
own = tc.replay(tc.plan(chain, bisection))
builtin = tc.replay(tc.plan(chain, "chen_recursive"))
print(own.summary())
print(builtin.summary())

# %% [markdown]
# Count for n = 2^p - 1, so that n+1 halves evenly. Each level of the recursion advances through
# half of every part, (n+1)/2 layers in total, and there are p levels: p * 2^(p-1) forward
# evaluations. At the deepest place each level holds one value, and there are two cotangents: p+2.

# %% [markdown]
# **Predict.** 15 layers: 48 evaluations, peak 6 values. Now n = 1023. How many values are the peak,
# and how many evaluations does it take in total (store-all: 1025 values, 2047 evaluations)?

# %%
my_guess = viz.ask("1023 layers, halved: which peak, how many evaluations?", (0, 0))

# %%
deep = tc.replay(tc.plan(tc.networks.chain(1023), "chen_recursive"))
found = (deep.peak_nodes, deep.evaluations)
print(f"you said {my_guess}; it is {found}: each doubling of the depth costs one value more")

# %% [markdown]
# The three shapes of growth, side by side; "evaluations / peak":

# %%
print("    n    store_all       sqrt_n    recursion")
for p in (2, 4, 6, 8, 10):
    n = 2**p - 1
    traces = [
        tc.replay(tc.plan(tc.networks.chain(n), policy))
        for policy in ("store_all", "sqrt_n", "chen_recursive")
    ]
    print(f"{n:5}  ", "  ".join(f"{t.evaluations:5}/{t.peak_nodes:<5}" for t in traces))

# %% [markdown]
# Memory falls from n to 2 sqrt(n) to log2(n). Work grows from 2n to less than 3n to
# n + (n/2) log2(n), nearly: no longer "one more forward pass", but about half a pass for each
# doubling.

# %%
passes = (deep.evaluations - 1024) / 1023
print(f"n=1023: the forward half is evaluated {passes:.2f} times over, on average")

# %% [markdown]
# k says where to stand between the two. More values kept at every level: fewer levels, fewer
# repetitions. With k = sqrt(n) one level does nearly all, and that is lesson 5.

# %%
print(f"n=1023, sqrt_n, {isqrt(1023)} + 1 segments:", end=" ")
root = tc.replay(tc.plan(tc.networks.chain(1023), "sqrt_n", segments=32))
print(f"{root.evaluations} evaluations, peak {root.peak_nodes}")
ways = {}
for k in (1, 2, 3, 5, 8, 31):
    trace = tc.replay(tc.plan(tc.networks.chain(1023), "chen_recursive", k=k))
    ways[k] = (trace.evaluations, trace.peak_nodes)
    print(f"k={k:2}: {ways[k][0]} evaluations, peak {ways[k][1]}")

# %% [markdown]
# In the picture: a value is kept in the middle, then in the middle of the rest. Once the sweep has
# come back to a checkpoint, its memory goes to another one, nearer to the input.

# %%
print(viz.gif(builtin, OUT / "06_recursion.gif", fps=8))
shown = [tc.replay(tc.plan(chain, policy)) for policy in ("store_all", "sqrt_n", "chen_recursive")]
print(viz.timeline(shown, OUT / "06_timeline.png"))
print(viz.ledger(builtin, OUT / "06_ledger.png"))
print(viz.player(shown, OUT / "06_player.html"))

# %% [markdown]
# **Challenge.** 15 layers again, within 7 values: one more than halving needs. What you drop is
# computed again once, and no more. With how little recomputation can you do?

# %%
print(viz.lab(chain, OUT / "06_lab.html", network="chain:15", challenge="7 nodes"))

# %%
layers = [f"f{layer}" for layer in range(1, 16)]
my_choice = viz.ask("Which values do you keep?", ("f4", "f8", "f12"), among=layers)

# %%
mine = tc.plan(chain, "retain", keep=my_choice)
print(f"you said {my_choice}; it is {viz.challenge(mine, '7 nodes')}")

# %% [markdown]
# Is log n for n log n the best bargain? To halve evenly is natural. The next lesson shows that it
# is not optimal.

# %%
assert own.steps == builtin.steps
assert (builtin.evaluations, builtin.peak_nodes) == (48, 6)
assert found == (12, 6144)
for p in range(1, 11):
    n = 2**p - 1
    trace = tc.replay(tc.plan(tc.networks.chain(n), "chen_recursive"))
    assert trace.evaluations == p * 2 ** (p - 1) + n + 1
    assert trace.peak_nodes == p + 2
assert [pair[1] for pair in ways.values()] == sorted(pair[1] for pair in ways.values())
assert [pair[0] for pair in ways.values()] == sorted((e for e, _ in ways.values()), reverse=True)
x = np.linspace(-1, 1, 64).reshape(8, 8)
results = [tc.run(trace.schedule, x).gradients for trace in shown]
assert all(np.array_equal(results[0], other) for other in results)
