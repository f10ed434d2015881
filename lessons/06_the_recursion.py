# %% [markdown]
# # 6. The recursion
#
# sqrt(n) keeps the values between segments and, in the backward pass, all values of one segment.
# But a segment is a chain too, so it can be checkpointed in turn, and its parts, recursively.
#
# Chen, Xu, Zhang and Guestrin, arXiv 1604.06174, section 4.4: keep k values, which leaves parts of
# n/(k+1) layers, and recurse into each part: memory g(n) = k + g(n/(k+1)). With k = 1 this is
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
# The recursion is short. To reverse the layers from last-1 to first, with the value of f(first) in
# memory (f0 is the input): advance to the middle, reverse the second half, then the first. Where
# one value is left, run its adjoint.


# %%
def back(first, last, n):
    """Return the names of the operators that reverse the layers from last-1 to first."""
    if last - first == 1:
        if first == n:
            return ["l", f"b{n}"]
        return [f"b{first}"] if first else []
    middle = (first + last) // 2
    advance = [f"f{layer}" for layer in range(first + 1, middle + 1)]
    return advance + back(middle, last, n) + back(first, middle, n)


# %% [markdown]
# **Predict.** By hand, for 7 layers: how often is f1 evaluated, and how often f5?

# %%
my_times = viz.ask("7 layers, halved: how often f1, how often f5?", (0, 0))

# %%
names = back(0, 8, 7)
print(" ".join(names))
print(f"you said {my_times}; it is {(names.count('f1'), names.count('f5'))}")

# %% [markdown]
# The sequence runs forward to f7 and back to b6; it evaluates f5, f1, f2, f3 again, and f1 a third
# time.

# %% [markdown]
# A policy is a function from a graph to a schedule. `tc.from_order` frees each value after its last
# reader, so an evaluation order is all that a policy has to return.


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
# evaluations. At the deepest point each level keeps one value, and two cotangents are live: p+2.

# %% [markdown]
# **Predict.** 15 layers: 48 evaluations, peak 6 values. Now n = 1023. What is the peak, in values,
# and what is the total number of evaluations (store-all: 1025 values, 2047 evaluations)?

# %%
my_guess = viz.ask("1023 layers, halved: which peak, how many evaluations?", (0, 0))

# %%
deep = tc.replay(tc.plan(tc.networks.chain(1023), "chen_recursive"))
found = (deep.peak_nodes, deep.evaluations)
print(f"you said {my_guess}; it is {found}: each doubling of the depth costs one more value")

# %% [markdown]
# The growth of the three policies, as "evaluations / peak":

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
# Memory falls from n to 2 sqrt(n) to log2(n). Work grows from 2n to less than 3n to nearly n +
# (n/2) log2(n): no longer one extra forward pass, but about half a pass per doubling.

# %%
passes = (deep.evaluations - 1024) / 1023
print(f"n=1023: the forward pass is evaluated {passes:.2f} times on average")

# %% [markdown]
# k interpolates between the two. More values kept per level mean fewer levels and fewer
# recomputations. With k = sqrt(n) one level does nearly everything, as in lesson 5.

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
# In the picture: a value is kept in the middle, then in the middle of each rest. Once the backward
# pass has reached a checkpoint, its memory is reused for another one, nearer to the input.

# %%
print(viz.gif(builtin, OUT / "06_recursion.gif", fps=8))
shown = [tc.replay(tc.plan(chain, policy)) for policy in ("store_all", "sqrt_n", "chen_recursive")]
print(viz.timeline(shown, OUT / "06_timeline.png"))
print(viz.ledger(builtin, OUT / "06_ledger.png"))
print(viz.player(shown, OUT / "06_player.html", show="chen_recursive"))

# %% [markdown]
# **Challenge.** 15 layers again, within 7 values: one more than halving needs. Evicted values are
# recomputed once, and no more. How little recomputation is possible?

# %%
print(viz.lab(chain, OUT / "06_lab.html", network="chain:15", challenge="7 nodes"))

# %%
layers = [f"f{layer}" for layer in range(1, 16)]
my_choice = viz.ask("Which values do you keep?", ("f4", "f8", "f12"), among=layers)

# %%
mine = tc.plan(chain, "retain", keep=my_choice)
print(f"you said {my_choice}; it is {viz.challenge(mine, '7 nodes')}")

# %% [markdown]
# Is O(log n) memory for O(n log n) work the best tradeoff? Halving evenly is natural. The next
# lesson shows that it is not optimal.

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
