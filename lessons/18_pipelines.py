# %% [markdown]
# # 18. Pipelines: the bubble, the memory, and early recomputation
#
# A network that does not fit one device is split into *stages*, one per device, and the batch into
# *micro-batches*, which pass through the stages like cars on an assembly line. While the pipeline
# fills and drains, devices are idle: the *bubble*. How long is it, how much memory does each device
# need, and what can run in the idle time?

# %%
from fractions import Fraction
from pathlib import Path

import numpy as np

import tinyckpt as tc
from tinyckpt import viz

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# GPipe (Huang et al., arXiv 1811.06965): all forwards, then all backwards. A forward takes 1, a
# backward 2. `replay_pipeline` says when each begins. A row is a device, a column a unit of time;
# digits are forwards, letters backwards.

# %%
from tinyckpt.pipeline import gpipe, replay_pipeline


def drawn(trace):
    lines = []
    for device in range(trace.pipeline.devices):
        line = ["."] * trace.makespan
        for step, action in enumerate(trace.pipeline.actions(device)):
            begin, own = trace.start(device, step), "abcdefgh"[action.micro_batch]
            if action.kind == "forward":
                line[begin] = str(action.micro_batch)
            elif action.kind == "backward":
                line[begin : begin + 2] = own * 2
        lines.append("".join(line))
    return "\n".join(lines)


line = replay_pipeline(gpipe(4, 6))
print(drawn(line), f"{float(line.bubble):.1%} of device time idle", sep="\n")

# %% [markdown]
# Each row is idle for 9 of 27 units, in which others run three forwards and three backwards. With K
# devices and M micro-batches the bubble is (K-1)/(M+K-1). So use more micro-batches?

# %%
for count in (4, 16, 64):
    trace = replay_pipeline(gpipe(4, count))
    print(f"{count:2} micro-batches: bubble {float(trace.bubble):5.1%}, in flight {trace.peaks}")

# %% [markdown]
# A micro-batch is *in flight* between its forward and its backward, with its activations resident.
# All M at once is the price of GPipe. 1F1B (Narayanan et al., arXiv 2104.04473) runs each backward
# as soon as it can. It is not faster, but device k has only min(K-k, M) in flight, for any M:

# %%
from tinyckpt.pipeline import one_f_one_b

turns = replay_pipeline(one_f_one_b(4, 6))
print(drawn(turns), f"in flight {turns.peaks}", sep="\n")

# %% [markdown]
# GPipe also recomputes: a stage saves its input, and recomputes its interior before its backward
# pass. With 8 devices and 32 micro-batches the batch takes 117 units, and 156 with recomputation,
# one more for each backward. But recomputation reads no cotangent. So a device can run it *early*,
# while it waits for the cotangent to arrive.
#
# **Predict.** Of the 39 units that recomputation adds, how many are saved by early recomputation?

# %%
my_guess = viz.ask("Of 39 units, how many are saved?", 0)

# %%
spans = {how: replay_pipeline(gpipe(8, 32, how)).makespan for how in (None, "late", "early")}
print(spans)
hidden = spans["late"] - spans["early"]
print(f"you said {my_guess}; it is {hidden}, one on each device except the last")

# %% [markdown]
# A device waits for its first cotangent; the others arrive back to back. To fill more of the
# bubble, split each backward: the input's gradient, which the stage before waits for, and the
# weights' gradients, which nothing waits for. Zero-bubble pipelines (Qi et al., arXiv 2401.10241)
# run the latter where a device would be idle. V-shaped ones (arXiv 2405.15362) also give each
# device two stages, one from either end, so that all devices need the same memory, and less:

# %%
from tinyckpt.pipeline import PipelineCosts, v_half, v_min, zb_h1

forms = {"gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "v-min": v_min, "v-half": v_half}
table = {}
for name, make in forms.items():
    each = Fraction(1, 2 if name.startswith("v") else 1)  # a stage has half as many layers
    trace = replay_pipeline(make(8, 32), PipelineCosts(each, each, each))
    table[name] = (float(trace.bubble), max(trace.peaks) * each)
    print(f"{name:6} bubble {table[name][0]:5.1%}, at most {float(table[name][1]):4} in flight")

# %% [markdown]
# Now a network. `partition` cuts its graph at equal cost, `stages_of` makes a graph of each part,
# with one extra operator, *exchange*, which stands for all stages after it, and `plan_stages` plans
# each by itself. `run_pipeline` runs the devices in one process, or in many under MPI
# (docs/pipelines.md). The gradients are bitwise those of one device:

# %%
from tinyckpt.pipeline import partition, plan_stages, run_pipeline, stages_of

network = tc.networks.mlp(16, 32)
graph = network.graph()
params, *_ = network.arrays()
rng = np.random.default_rng(0)
batches = [(params, rng.normal(size=(32, 32)), rng.integers(0, 10, 32)) for _ in range(8)]
cuts = partition(graph, 4, costs=tc.cost.flops(graph))
stages = plan_stages(stages_of(graph, cuts), "sqrt_n", early=True)
result = run_pipeline(one_f_one_b(4, 8, recompute="early"), stages, batches)

total = None  # of the gradients on one device
for batch in batches:
    found = tc.tree.leaves(tc.run(tc.plan(graph), *batch).gradients)
    total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
pairs = zip(total, tc.tree.leaves(result.gradients), strict=True)
same = all(np.array_equal(summed / 8, mean) for summed, mean in pairs)
print("bitwise equal:", same)

# %%
print(viz.pipeline([line, turns], OUT / "18_pipelines.png"))
early = [replay_pipeline(one_f_one_b(4, 6, how)) for how in ("late", "early")]
print(viz.pipeline(early, OUT / "18_early.png", title=["recomputed late", "early"], theme="dark"))
print(viz.player(tc.replay(stages[1].schedule), OUT / "18_player.html"))

# %%
for k, m in ((4, 6), (4, 16), (8, 32), (5, 3)):
    trace = replay_pipeline(gpipe(k, m))
    assert trace.bubble == Fraction(k - 1, m + k - 1)
    trace = replay_pipeline(one_f_one_b(k, m))
    assert trace.peaks == tuple(min(k - device, m) for device in range(k))
    assert trace.bubble == Fraction(k - 1, m + k - 1)
assert spans == {None: 117, "late": 156, "early": 149}
assert (table["v-min"][1], table["v-half"][1]) == ((8 + 4) // 3, (8 + 2) // 2)
assert same
