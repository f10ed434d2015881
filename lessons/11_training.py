# %% [markdown]
# # 11. A training loop, and what it holds
#
# A training step holds activations, and also parameters, their gradients, and what the optimiser
# remembers. To save memory, look first at what the bytes are: each kind has a remedy of its own,
# which does nothing for the others.

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
# `tc.train_step` puts the optimiser into the graph as well: one schedule for all of it. The loop is
# yours. Which batch comes depends on the number of the step alone; that will be of use.


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
# The ledger says what the bytes are at the peak of one such step. First as most programs do it:
# every gradient is *held* until all are there, then the optimiser comes.
#
# **Predict.** All in float32, of 4 bytes. How many times its own size does a parameter take, with
# its gradient and with what Adam remembers of it?

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
print(f"that is {each(held)} bytes a parameter")

# %% [markdown]
# The moments are often called gradients. They are *state*, which stays from step to step, while a
# gradient is there for one step, and may go before its end.
#
# **Predict.** Mixed precision: parameters and gradients are float16, and Adam works on a float32
# copy of the parameters, the *master weights*, since small updates would be lost in 16 bits. How
# many bytes a parameter are that?

# %%
my_guess = viz.ask("Mixed precision: how many bytes a parameter?", 0)

# %%
half = ledger("float16", gradients="held")
print(f"you said {my_guess}; it is {each(half)}: 2 + 2, and 4 + 8 of state")

# %% [markdown]
# The same. What mixed precision halves are gradients and activations. Now the other remedies, those
# with gradients *consumed*; a column is the most that there is of a kind at any time, in MiB:

# %%
books = {"held": held, "mixed precision": half, "consumed": ledger()}
books["4 micro-batches"] = ledger(part="last", rows=32, micro_batches=4)
books["sqrt_n"] = ledger(policy="sqrt_n")
table = {}
print(" " * 15, "gradients  activations  added up   total")
for name, book in books.items():
    most = [max(book.held["gradients"]), max(book.held["activations"])]
    most += [book.sources["accumulated gradients"], book.peak_bytes]
    table[name] = [round(nbytes / MIB, 2) for nbytes in most]
    print("{:15} {:9} {:12} {:9} {:7}".format(name, *table[name]))

# %% [markdown]
# Consumed is what `train_step` does unless told otherwise: a parameter is updated as soon as its
# gradient is there, and then the gradient is gone. *Micro-batches* divide activations by 4, and add
# gradients up, in memory of their own: here that costs more than it saves. They are averaged: for a
# loss that is a mean, the result is that of the whole batch. `sqrt_n` is for activations alone.
#
# Parameters, state and number of the step are all that one step hands to the next. So a run that is
# saved, interrupted and resumed comes to the same bits:

# %%
other = step.init(params)
for number in range(30):
    other, _ = step(other, *batch(number))
tc.save_params(other, OUT / "11_state.npz")
other = tc.load_params(OUT / "11_state.npz")
for number in range(int(other["step"]), 60):
    other, _ = step(other, *batch(number))
same = np.array_equal(other["parameters"][3]["w"], state["parameters"][3]["w"])
print("the same bits:", same)

# %%
figure = Figure(figsize=(5, 3), layout="constrained")
figure.subplots().plot(curve)
figure.savefig(OUT / "11_loss.png", dpi=150)
names = ["held", "consumed", "4 micro-batches"]
print(viz.breakdown([books[name] for name in names], OUT / "11_bytes.png", title=names))
print(viz.player(tc.replay(books["consumed"].schedule), OUT / "11_player.html"))

# %%
assert (count, each(held), each(half), same) == (479_754, 16, 16, True)
assert curve[-1] < 0.25 * curve[0]
columns = list(zip(*table.values(), strict=True))
assert columns[0] == (1.83, 0.92, 0.25, 0.25, 0.25)
assert columns[1] == (1.12, 0.56, 1.12, 0.28, 0.62)
assert columns[3] == (7.84, 7.96, 7.27, 8.33, 6.9)
parted = tc.train_step(loss, adam, micro_batches=4)
assert np.isclose(parted(parted.init(params), *batch(0))[1], curve[0], rtol=1e-6)
