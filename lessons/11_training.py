# %% [markdown]
# # 11. A training loop, and its memory
#
# A training step stores activations, and also parameters, their gradients and the optimiser state.
# To save memory, first account for the bytes: each kind has a technique of its own, which does
# nothing for the others.

# %%
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

import tinyckpt as tc
from tinyckpt import viz
from tinyckpt.networks.digits import load_digits

OUT = Path("out")
OUT.mkdir(exist_ok=True)
MIB = 2**20


# %%
def loss(params, x, labels):
    *hidden, last = params
    for layer in hidden:
        x = tc.tanh(x @ layer["w"] + layer["b"])
    return tc.cross_entropy((x @ last["w"] + last["b"]).astype("float32"), labels)


digits, rng = load_digits(), np.random.default_rng(0)
images, labels = digits.images.astype("float32"), digits.labels
params = [
    {"w": (rng.normal(size=(a, b)) / a**0.5).astype("float32"), "b": np.zeros(b, "float32")}
    for a, b in zip([64] + [256] * 8, [256] * 8 + [10], strict=True)
]
count = sum(array.size for layer in params for array in layer.values())

# %% [markdown]
# `tc.train_step` includes the optimiser in the graph: one schedule for the whole step. The loop is
# yours. The batch depends on the step number alone, which is needed to resume a run.


# %%
def batch(number):
    rows = np.random.default_rng(number).choice(len(labels), 128, replace=False)
    return images[rows], labels[rows]


adam = tc.adam(1e-3)
step = tc.train_step(loss, adam)
state, curve = step.init(params), []
for number in (bar := tqdm(range(60), unit="step", disable=None)):
    state, value = step(state, *batch(number))
    curve.append(float(value))
    bar.set_postfix(loss=f"{value:.3f}")
print(f"{count:,} parameters; the loss falls from {curve[0]:.2f} to {curve[-1]:.2f}")

# %% [markdown]
# The ledger breaks down the bytes at the peak of one such step. First the usual way: every gradient
# is *held* until all have been computed, then the optimiser runs.
#
# **Predict.** All in float32, of 4 bytes. How many times its own size does a parameter take, with
# its gradient and its Adam state?

# %%
my_times = viz.ask("A parameter, its gradient, Adam: how many times its size?", 0)


# %%
def ledger(dtype="float32", part="whole", rows=128, **options):
    optimizer = adam if dtype == "float32" else tc.with_master_weights(adam)
    own = tc.train_step(loss, optimizer, **options)
    specs = [{key: tc.Spec(p.shape, dtype) for key, p in layer.items()} for layer in params]
    data = tc.Spec((rows, 64), dtype), tc.Spec(rows, "int64")
    return tc.ledger(own.schedule(own.init(specs), *data, part=part))


def each(book):
    state = book.sources["parameters"] + book.sources["optimizer state"]
    return (state + max(book.held["gradients"])) // count


held = ledger(gradients="held")
print(held)
print(f"you said {my_times}; it is {each(held) // 4}: itself, its gradient, Adam's two moments")
print(f"that is {each(held)} bytes per parameter")

# %% [markdown]
# The moments are often called gradients. They are *state*, which persists from step to step, while
# a gradient lives for one step, and may be freed before its end.
#
# **Predict.** Mixed precision: parameters and gradients are float16, and Adam updates a float32
# copy of the parameters, the *master weights*, since small updates would be lost in 16 bits. How
# many bytes per parameter is that?

# %%
my_guess = viz.ask("Mixed precision: how many bytes per parameter?", 0)

# %%
half = ledger("float16", gradients="held")
print(f"you said {my_guess}; it is {each(half)}: 2 + 2, and 4 + 8 of state")

# %% [markdown]
# The same. Mixed precision halves only gradients and activations. Now the other techniques, those
# with gradients *consumed*; each column is the maximum of one kind over the step, in MiB:

# %%
books = {"held": held, "mixed precision": half, "consumed": ledger()}
books["4 micro-batches"] = ledger(part="last", rows=32, micro_batches=4)
books["sqrt_n"] = ledger(policy="sqrt_n")
table = {}
print(" " * 15, "gradients  activations  accumul.   total")
for name, book in books.items():
    most = [max(book.held["gradients"]), max(book.held["activations"])]
    most += [book.sources["accumulated gradients"], book.peak_bytes]
    table[name] = [round(nbytes / MIB, 2) for nbytes in most]
    print("{:15} {:9} {:12} {:9} {:7}".format(name, *table[name]))

# %% [markdown]
# *Consumed* is the default of `train_step`: a parameter is updated as soon as its gradient has been
# computed, and the gradient is freed. *Micro-batches* divide activations by 4, and accumulate
# gradients in a buffer of their own: here that costs more than it saves. They are averaged: for a
# mean loss, the result is that of the whole batch. `sqrt_n` reduces activations alone.
#
# Parameters, optimiser state and step number are all that one step passes to the next. So a run
# that is saved, interrupted and resumed is bitwise equal:

# %%
other = step.init(params)
for number in range(30):
    other, _ = step(other, *batch(number))
tc.save_params(other, OUT / "11_state.npz")
other = tc.load_params(OUT / "11_state.npz")
for number in range(int(other["step"]), 60):
    other, _ = step(other, *batch(number))
same = np.array_equal(other["parameters"][3]["w"], state["parameters"][3]["w"])
print("bitwise equal:", same)

# %%
figure = Figure(figsize=(5, 3), layout="constrained")
figure.subplots().plot(curve)
figure.savefig(OUT / "11_loss.png", dpi=150)
print(OUT / "11_loss.png")
names = ["held", "consumed", "4 micro-batches"]
print(viz.breakdown([books[name] for name in names], OUT / "11_bytes.png", title=names))
consumed = tc.replay(books["consumed"].schedule)
print(viz.player(consumed, OUT / "11_player.html", title="A training step with its optimiser"))

# %%
assert (count, each(held), each(half), same) == (479_754, 16, 16, True)
assert curve[-1] < 0.25 * curve[0]
columns = list(zip(*table.values(), strict=True))
assert columns[0] == (1.83, 0.92, 0.25, 0.25, 0.25)
assert columns[1] == (1.12, 0.56, 1.12, 0.28, 0.62)
assert columns[3] == (7.84, 7.96, 7.27, 8.33, 6.9)
split = tc.train_step(loss, adam, micro_batches=4)
assert np.isclose(split(split.init(params), *batch(0))[1], curve[0], rtol=1e-6)
