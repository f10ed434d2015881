# %% [markdown]
# # 7. The optimum
#
# Given a chain of n layers and a budget of b values, what is the minimum number of evaluations? The
# chain is one of the few cases with an exact answer. Griewank and Walther, "Algorithm 799:
# Revolve", ACM TOMS 26(1), 2000. (On general graphs the problem is NP-hard: lesson 9.)

# %%
from functools import cache
from math import comb
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# In Revolve's terms: reverse a chain of *steps* with *slots* that store one state each. **The
# initial state occupies a slot too**, a common source of confusion. t(l, s) is the minimum number
# of advances. With one slot, restart from the beginning each time. With more, advance k steps,
# checkpoint the state, reverse the rest with one slot less, and then the first k steps with all
# slots:


# %%
@cache
def t(steps, slots):
    """Return the minimum number of advances, trying every position of the next checkpoint."""
    if steps == 1 or slots == 1:
        return steps * (steps - 1) // 2
    return min(k + t(k, slots) + t(steps - k, slots - 1) for k in range(1, steps))


# %% [markdown]
# **Predict.** Five steps and two slots: one stores the initial state, the other one state at a
# time, of your choice. What is the minimum number of advances?

# %%
my_advances = viz.ask("5 steps, 2 slots: how few advances?", 0)

# %%
ways = {k: k + t(k, 2) + t(5 - k, 1) for k in range(1, 5)}
print(f"you said {my_advances}; it is {t(5, 2)}: by position of the checkpoint, {ways}")


# %%
# Six steps, two slots: one row per advance; `>` is a step that it goes through.
def advances(first, last, slots):
    """Return the cheapest advances, as pairs of steps, that reverse the steps between two."""
    steps = last - first
    if slots == 1:
        return [(first, end) for end in range(last - 1, first, -1)]
    if steps == 1:
        return []
    cost = {k: k + t(k, slots) + t(steps - k, slots - 1) for k in range(1, steps)}
    middle = first + min(cost, key=cost.get)
    return [(first, middle), *advances(middle, last, slots - 1), *advances(first, middle, slots)]


print("step  ", *range(1, 7))
for begin, end in advances(0, 6, 2):
    print("      ", *[">" if begin < step <= end else "." for step in range(1, 7)])
times = [sum(begin < step <= end for begin, end in advances(0, 6, 2)) for step in range(1, 7)]
print("times ", *times)

# %% [markdown]
# Where do the advances go? Six steps and two slots: each row above is one advance, from a state in
# a slot, and the last row counts how often each step is advanced through. The first row
# checkpoints the state after step 3. The next two reverse steps 6, 5 and 4 from it, with the one
# slot that is left. Then that slot is free again: the state after step 1 goes into it, and steps 3,
# 2 and 1 are reversed. **No step is advanced through more than r = 2 times**, and six steps are the
# most for which that is so. For let L(s, r) be the most steps with s slots and r times. Those
# before the checkpoint have been advanced through once already: r-1 times are left, and all s
# slots. Those after it have r times, and a slot less. So
#
#     L(s, r) = L(s, r-1) + L(s-1, r), here 6 = 3 + 3,
#
# which is Pascal's triangle: L(s, r) = C(s+r, s), a binomial coefficient. For l steps, take the
# smallest r that suffices. If each step were advanced through r times, that were r*l; those that
# are passed less often save C(s+r, r-1): t = r*l - C(s+r, r-1), here 2*6 - 4 = 8, the `>` above.


# %%
def closed_form(steps, slots):
    r = 0
    while comb(slots + r, slots) < steps:
        r += 1
    return r * steps - comb(slots + r, r - 1) if r else 0


print("steps:  ", *(f"{steps:4}" for steps in range(2, 17, 2)))
for slots in (1, 2, 3, 4):
    print(f"{slots} slots:", *(f"{closed_form(steps, slots):4}" for steps in range(2, 17, 2)))

# %% [markdown]
# From steps to our chain: it has n+1 of them, n layers and `l`. Of a budget of b values, two are
# cotangents and one is the value under evaluation; the other b-3 may be checkpoints. The initial
# state x has a slot at no cost, since a source is not charged: s = b-2. Every backward operator and
# `l` are evaluated once: (n+1) + t(n+1, b-2) evaluations in total.


# %%
def optimum(n, budget):
    return (n + 1) + closed_form(n + 1, budget - 2)


planned = {}
for budget in range(3, 11):
    schedule = tc.plan(tc.networks.chain(8), budget=f"{budget} nodes")
    trace = tc.replay(schedule)
    planned[budget] = trace.evaluations
    print(f"{trace.peak_nodes:2} values: {trace.evaluations} evaluations, {schedule.policy}")

# %% [markdown]
# Given a budget, `tc.plan` returns a schedule whose true peak is within it, and a *certificate*:
# what is proven about its gap to the optimum. An infeasible budget raises an error.

# %%
print(tc.plan(tc.networks.chain(16), budget="9 nodes").certificate)
try:
    tc.plan(tc.networks.chain(16), budget="2 nodes")
except tc.BudgetError as error:
    print(error)

# %% [markdown]
# 42 evaluations with 9 values for n = 16 is sqrt(n), from lesson 5. For n = k*k at its peak of 2k+1
# there are s = 2k-1 slots, r is 2, and the formula gives 2n+1 + (k-1)^2, exactly what sqrt(n)
# needs. As long as no step is advanced through more than twice, each further slot saves exactly one
# evaluation, that of the value in it. And with peak 3, a single slot, there is no choice:
# recompute-all is optimal too.

# %% [markdown]
# **Predict.** The recursion needs 48 evaluations for 15 layers at peak 6. What is the optimum?

# %%
my_guess = viz.ask("15 layers, 6 values: how few evaluations?", 0)

# %%
best = tc.plan(tc.networks.chain(15), "revolve", budget="6 nodes")
halved = tc.plan(tc.networks.chain(15), "chen_recursive")
print(f"you said {my_guess}; it is {tc.replay(best).evaluations}")

# %% [markdown]
# Halving is suboptimal. The first part is advanced through once more than the second, to reach the
# checkpoint; the second has one slot less. So the best position is before the middle, and the more
# so with more slots, s, and fewer repetitions, r. Here s = 4 and r = 3. The deeper the chain, the
# more halving costs:

# %%
costs = [k + t(k, 4) + t(16 - k, 3) for k in range(1, 16)]
for k, cost in enumerate(costs, start=1):
    print(f"first checkpoint after f{k:<2}: {16 + cost} evaluations  {'#' * cost}")
chain = tc.networks.chain(1023)
print(tc.replay(tc.plan(chain, "chen_recursive")).summary())
print(tc.replay(tc.plan(chain, "revolve", slots=10)).summary())

# %% [markdown]
# **Challenge.** 8 values are 6 slots, and C(6+2, 2) = 28 steps: 27 layers is the longest chain in
# which nothing is computed more than twice within 8 values. Exactly one choice achieves it.

# %%
longest = tc.networks.chain(27)
print(viz.lab(longest, OUT / "07_lab.html", network="chain:27", challenge="8 nodes"))

# %%
layers = [f"f{layer}" for layer in range(1, 28)]
my_choice = viz.ask("Which values do you keep?", ("f7", "f14", "f21"), among=layers)

# %%
mine = tc.plan(longest, "retain", keep=my_choice)
print(f"you said {my_choice}; it is {viz.challenge(mine, '8 nodes')}")

# %% [markdown]
# Ten thousand layers, sixteen values; store-all would need 10002. How many times is the forward
# pass evaluated?

# %%
abyss = tc.networks.chain(10_000)
deep = tc.replay(tc.plan(abyss, "revolve", slots=14))
print(deep.summary())
bound = tc.lower_bound(abyss, "16 nodes")
passes = (deep.evaluations - 10_001) / 10_000
print(f"{passes:.2f} times; the lower bound for any schedule is {bound} evaluations")

# %%
pair = [tc.replay(schedule) for schedule in (halved, best)]
print(viz.gif(pair, OUT / "07_optimum.gif", fps=8))
chain = tc.networks.chain(31)
longer = [tc.plan(chain, "chen_recursive"), tc.plan(chain, "revolve", budget="7 nodes")]
print(viz.player([tc.replay(schedule) for schedule in longer], OUT / "07_player.html"))

# %%
assert all(t(a, s) == closed_form(a, s) for a in range(1, 60) for s in range(1, 10))
assert (times, closed_form(6, 2)) == ([2, 2, 1, 2, 1, 0], 8)
assert list(planned.values()) == [45, 26, 22, 21, 20, 19, 18, 17]
assert planned == {budget: optimum(8, budget) for budget in planned}
for k in range(2, 30):
    assert optimum(k * k, 2 * k + 1) == 2 * k * k + 1 + (k - 1) ** 2
    assert optimum(k, 3) == k * (k + 1) // 2 + k + 1
assert [(trace.evaluations, trace.peak_nodes) for trace in pair] == [(48, 6), (43, 6)]
assert costs.index(min(costs)) + 1 == 5
assert (optimum(15, 6), optimum(1023, 12)) == (43, 4779)
assert (deep.evaluations, deep.peak_nodes, bound) == (56130, 16, 56130)
x = np.linspace(-1, 1, 64).reshape(8, 8)
assert np.array_equal(tc.run(best, x).gradients, tc.run(halved, x).gradients)
