# %% [markdown]
# # 19. Your PyTorch model
#
# So far every network was written for this project. Yours is in PyTorch, and fails with "CUDA out
# of memory". PyTorch can export the joint graph of a training step, forward and backward, as in
# lesson 2: operators, values, bytes. From there on everything is as before. It needs `pip install
# 'tinyckpt[torch]'`.

# %%
from pathlib import Path

import tinyckpt as tc
from tinyckpt import viz
from tinyckpt.interop import torch as tct

OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %%
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

VOCABULARY, LENGTH, BATCH, WIDTH, HEADS = 500, 128, 8, 96, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.joint(self.first(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


torch.manual_seed(0)
model = GPT()
batch = tuple(torch.randint(VOCABULARY, (2, BATCH, LENGTH)))

# %% [markdown]
# PyTorch runs a step; its allocator's peak is a third account, neither replay nor execution.


# %%
def plain():
    model.zero_grad()
    loss = model(*batch)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters()}


measured, (loss, gradients) = tct.allocator_peak(plain)
traced = tct.trace(model, *batch)  # shapes alone; no step is run
stored = tc.replay(tc.plan(traced.graph))
print(traced)
print(f"predicted {stored.peak_bytes:,} bytes, measured {measured:,}")

# %% [markdown]
# The difference of four bytes is the scalar 1 that seeds PyTorch's backward pass.
#
# The usual remedy is `torch.utils.checkpoint` around every block. **Predict.** To get below half of
# the peak, how many of the six blocks need it?

# %%
my_guess = viz.ask("Half of the peak: how many of six blocks?", 0)

# %%
blocks = [f"blocks.{index}" for index in range(6)]
every = tct.advise(model, *batch, budget=0.25, modules=blocks)
advice = tct.advise(model, *batch, budget=0.5, modules=blocks)
print(f"all six: {every.peak / measured:.0%} of the peak, {every.cost:.3f} times the FLOPs")
print(f"you said {my_guess}; it is {len(advice.modules)}")
print(advice)

# %% [markdown]
# The lines at the end are for plain eager training. `advice.apply(model)` does the same in three
# lines: import, advise, apply. A second instance of the model confirms the prediction:

# %%
wrapped, model = model, GPT()
model.load_state_dict(wrapped.state_dict())
advice.apply(model)
held, (again, their_gradients) = tct.allocator_peak(plain)
print(f"advised {advice.peak:,} bytes, measured {held:,}")

# %% [markdown]
# A block is a coarse unit: all of its values are evicted, the large and cheap (lesson 13) and the
# expensive. A plan decides per value. `step` runs it in PyTorch, on the unmodified model, and
# returns loss and gradients.

# %%
schedule = tc.plan(traced.graph, budget=advice.peak, time_limit=4)
planned = tc.replay(schedule)
step = tct.step(schedule, traced)
lower, (own_loss, own_gradients) = tct.allocator_peak(lambda: step(*batch))
costs = tc.cost.given(traced.graph)
times = tc.cost.cost_of(schedule, costs) / tc.cost.cost_of(stored.schedule, costs)
print(f"predicted {planned.peak_bytes:,} bytes, measured {lower:,}")
print(f"{times:.3f} times the FLOPs, instead of {advice.cost:.3f}")
print(schedule.certificate)

# %% [markdown]
# For `torch.compile` use `tct.backend(budget)`; `tinyckpt torch` reports all this for a model in a
# file (docs/torch.md). PyTorch's own option for the purpose, `activation_memory_budget`, bounds the
# saved values, which is not the peak (lesson 8): `tct.compare` shows both side by side.

# %%
print(viz.player([stored, planned], OUT / "19_player.html"))

# %%
assert measured == stored.peak_bytes + 4
assert (every.modules, len(advice.modules)) == (tuple(blocks), 4)
assert held == advice.peak < measured / 2
assert lower == planned.peak_bytes + 4 <= advice.peak + 4
assert 1 < times < advice.cost < every.cost
assert torch.equal(loss, own_loss)
assert torch.equal(loss, again)
for name, gradient in gradients.items():  # to the last bit
    assert torch.equal(gradient, own_gradients[name])
    assert torch.equal(gradient, their_gradients[name])
