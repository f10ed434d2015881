# %% [markdown]
# # 14. The 100-layer CNN
#
# Here is a measurement to explain. A convolutional network of 100 layers was trained with
# checkpoints in S segments; the report gives 854, 686, 609, 590 and 580 M of memory for S = 2, 4,
# 8, 16 and 32. More segments, less memory, as expected. We count the same network from shapes
# alone.

# %%
from pathlib import Path

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)
MIB = 2**20
LAYERS, BATCH = 100, 64


# %%
def net(params, images, labels):
    h = tc.conv2d(images, params["stem"]["w"], params["stem"]["b"], padding=2)
    for layer in params["layers"]:
        h = tc.max_pool2d(tc.relu(tc.conv2d(h, layer["w"], layer["b"], padding=2)), 2)
    h = h.reshape(h.shape[0], -1)
    for layer in params["affine"]:
        h = h @ layer["w"] + layer["b"]
    return tc.cross_entropy(h, labels)


def specs(outputs, *shape):
    return {"w": tc.Spec(shape, "float32"), "b": tc.Spec(outputs, "float32")}


params = {
    "stem": specs(320, 320, 1, 3, 3),
    "layers": [specs(320, 320, 320, 3, 3)] * LAYERS,
    "affine": [specs(10, 1280, 10), specs(10, 10, 10)],
}
batch = tc.Spec((BATCH, 1, 28, 28), "float32"), tc.Spec(BATCH, "int64")
graph = tc.differentiate(tc.build(net, params, *batch))
weights = sum(node.nbytes for node in graph.data if node.role == "parameter")
print(f"{weights // 4:,} parameters, {weights / MIB:.1f} MiB")

# %% [markdown]
# Per image, PyTorch saves the image, the results of the first convolution, of every relu and every
# pooling, and an index of 8 bytes for each maximum. (Here an index takes 1 byte.)

# %%
saved = {"image": 28 * 28 * 4}
for operator in graph.operators[: graph.forward_count]:
    first, *index = (graph.data[data].spec for data in operator.outputs)
    if operator.name == "conv2d_1" or operator.kind in ("relu", "max_pool"):
        saved[operator.name] = (first.nbytes + 8 * sum(i.size for i in index)) // BATCH
each = sum(saved.values())
for name in list(saved)[:6]:
    print(f"{name:12} {saved[name]:9,} bytes, {saved[name] / each:5.1%}")
print(f"{'total':12} {each:9,} bytes per image")

# %% [markdown]
# Padding enlarges an image by 2 pixels, pooling halves it: from the sixth layer on it stays at 2x2,
# for 95 layers. The activations are concentrated at the front; the parameters are not.
#
# **Predict.** Gradients are held until the optimiser runs, as is usual. With all activations stored
# the peak is 1030 MiB, parameters included. What is it in 32 segments?

# %%
my_guess = viz.ask("32 segments: how many MiB?", 0)

# %%
peaks, traces = {}, {}
for segments in (1, 2, 4, 8, 16, 32):
    options = {"policy": "sqrt_n", "segments": segments} if segments > 1 else {}
    traces[segments] = trace = tc.replay(tc.plan(graph, **options))
    peaks[segments] = round((trace.peak_bytes + trace.source_bytes) / MIB, 1)
    where = graph.operators[trace.steps[trace.peak_step].operator].name
    print(f"{segments:2} segments: {peaks[segments]} MiB at {where}")
print(f"you said {my_guess}; it is {peaks[32]}, for every number of segments")

# %% [markdown]
# The peak is at the adjoint of the first relu. By then the gradients of all layers but two are
# live, and so are the largest values of the network, which this adjoint needs. Checkpointing
# reduces neither. The ledger of 32 segments:

# %%
book = tc.ledger(traces[32].schedule)
print(book)

# %% [markdown]
# (The workspace is a mask that NumPy allocates. Without it and the images, the peak is 1010.3 MiB.)
#
# So what was measured? Parameters and gradients alone are 703.5 MiB; a run within 580 does not
# train all of it. PyTorch's *reentrant* checkpoint has gradients only if one of the inputs of a
# segment requires one. An image does not; so the result of the first segment does not, nor that of
# the next. The last segment is not checkpointed, and it alone is trained. (PyTorch warns, and
# continues.) Its memory: parameters; gradients and momentum of the trained segment, kept from step
# to step; and the peak of the forward pass, a convolution's result and its relu:

# %%
modules = ["stem", *["conv", "relu", "pool"] * LAYERS]
reported = {2: 854, 4: 686, 8: 609, 16: 590, 32: 580}
forward = tc.replay(tc.plan(tc.build(net, params, *batch)))
layer = sum(spec.nbytes for spec in params["layers"][0].values())
affine = sum(spec.nbytes for pair in params["affine"] for spec in pair.values())
found = {}
for segments, measured in reported.items():
    trained = modules[len(modules) // segments * (segments - 1) :].count("conv")
    held = weights + 2 * (trained * layer + affine) + forward.peak_bytes + batch[0].nbytes
    found[segments] = (2 * trained + 4, round(held / MIB))
    print(f"S={segments:2}: {found[segments][0]:3} of 206 tensors trained, ", end="")
    print(f"{found[segments][1]} MiB counted, {measured} reported")

# %% [markdown]
# What fell with S was the work, not the memory for the same work. One gradient, which is `None`,
# would have shown it; so would the sum of two numbers.
#
# What does help? Gradients are a large part of the peak, so begin there. Consumed by the optimiser
# (lesson 11), they are freed before the first relu's adjoint runs; the rest are activations, some
# of which checkpointing saves. Use one technique per kind of bytes, the largest kind first.

# %%
consumed = {}
for segments in (1, 32):
    options = {"policy": "sqrt_n", "segments": segments} if segments > 1 else {}
    step = tc.train_step(net, tc.sgd(0.01), **options)
    schedule = step.schedule(step.init(params), *batch)
    consumed[segments] = round(tc.ledger(schedule).peak_bytes / MIB, 1)
    print(f"gradients consumed, {segments:2} segments: {consumed[segments]} MiB")

# %%
print(viz.timeline([traces[1], traces[32], tc.replay(schedule)], OUT / "14_timeline.png"))
print(viz.player(tc.replay(schedule), OUT / "14_player.html", title="CNN of 100 layers"))

# %%
assert (weights // 4, each) == (92_208_120, 7_974_976)
assert tc.networks.cnn100(BATCH).parameter_count == weights // 4  # the same network, ready made
assert list(peaks.values()) == [1030.5] * 6
assert round((book.peak_bytes - book.at_peak["workspace"] - batch[0].nbytes) / MIB, 1) == 1010.3
assert list(found.values()) == [(104, 864), (54, 688), (32, 611), (24, 582), (18, 561)]
assert consumed == {1: 748.5, 32: 682.3}
