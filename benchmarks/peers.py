"""Framework adapters for the benchmarks: a common set of functions, and training steps.

Each framework's own functions where it has them. HIPS/autograd has no norm, no convolution and no
attention: they are composed of NumPy's functions.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from models import Model

import tinyckpt as tc

EPSILON = 1e-5  # added to a variance


def of_tinyckpt() -> SimpleNamespace:
    """Return tinyckpt's functions."""
    return SimpleNamespace(
        tanh=tc.tanh,
        relu=tc.relu,
        gelu=lambda x: tc.gelu(x, approximate=True),
        reshape=tc.reshape,
        transpose=tc.transpose,
        thirds=lambda x: [tc.reshape(part, x.shape[1:]) for part in tc.split(x, 3)],
        layer_norm=lambda x, scale, shift: tc.layer_norm(x, scale, shift, epsilon=EPSILON),
        batch_norm=lambda x, scale, shift: tc.batch_norm(x, scale, shift, epsilon=EPSILON)[0],
        conv=lambda x, w, stride: tc.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2),
        max_pool=lambda x: tc.max_pool2d(x, 3, stride=2, padding=1),
        mean_of_pixels=lambda x: tc.mean(x, (2, 3)),
        causal_attention=lambda q, k, v: tc.attention(q, k, v, causal=True),
        half_squared_norm=tc.half_squared_norm,
    )


def of_torch() -> SimpleNamespace:
    """Return PyTorch's functions; the scores of attention are an array, as everywhere here."""
    import torch
    import torch.nn.functional as f

    def causal_attention(q: Any, k: Any, v: Any) -> Any:
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return f.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v

    return SimpleNamespace(
        tanh=torch.tanh,
        relu=torch.relu,
        gelu=lambda x: f.gelu(x, approximate="tanh"),
        reshape=torch.reshape,
        transpose=torch.permute,
        thirds=lambda x: x.unbind(0),
        layer_norm=lambda x, scale, shift: f.layer_norm(x, x.shape[-1:], scale, shift, EPSILON),
        batch_norm=lambda x, scale, shift: f.batch_norm(
            x, None, None, scale, shift, training=True, eps=EPSILON
        ),
        conv=lambda x, w, stride: f.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2),
        max_pool=lambda x: f.max_pool2d(x, 3, stride=2, padding=1),
        mean_of_pixels=lambda x: x.mean((2, 3)),
        causal_attention=causal_attention,
        half_squared_norm=lambda x: 0.5 * (x * x).sum(),
    )


def of_jax() -> SimpleNamespace:
    """Return JAX's functions."""
    import jax
    import jax.numpy as jnp

    def conv(x: Any, w: Any, stride: int) -> Any:
        margin = w.shape[-1] // 2
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(margin, margin)] * 2)

    def max_pool(x: Any) -> Any:
        padding = [(0, 0), (0, 0), (1, 1), (1, 1)]
        return jax.lax.reduce_window(x, -math.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), padding)

    return numpy_like(
        jnp, softmax=jax.nn.softmax, conv=conv, max_pool=max_pool,
        gelu=lambda x: jax.nn.gelu(x, True),
    )  # fmt: skip


def of_autograd() -> SimpleNamespace:
    """Return autograd's NumPy; a convolution is one product with the columns of all windows."""
    import autograd.numpy as anp

    def softmax(x: Any, axis: int) -> Any:
        e = anp.exp(x - anp.max(x, axis=axis, keepdims=True))
        return e / anp.sum(e, axis=axis, keepdims=True)

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + anp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def windows(x: Any, size: int, stride: int, padding: float) -> list[Any]:
        margin = (size // 2, size // 2)
        x = anp.pad(x, ((0, 0), (0, 0), margin, margin), "constant", constant_values=padding)
        height, width = (extent - size + 1 for extent in x.shape[2:])
        return [
            x[:, :, i : i + height : stride, j : j + width : stride]
            for i in range(size)
            for j in range(size)
        ]

    def conv(x: Any, w: Any, stride: int) -> Any:
        columns = anp.stack(windows(x, w.shape[-1], stride, 0.0), axis=2)
        images, channels, places, *counts = columns.shape
        columns = anp.reshape(columns, (images, channels * places, counts[0] * counts[1]))
        y = anp.matmul(anp.reshape(w, (len(w), -1)), columns)
        return anp.reshape(y, (images, len(w), *counts))

    def max_pool(x: Any) -> Any:
        return anp.max(anp.stack(windows(x, 3, 2, -math.inf)), axis=0)

    return numpy_like(anp, softmax=softmax, conv=conv, max_pool=max_pool, gelu=gelu)


def numpy_like(xp: Any, softmax: Any, conv: Any, max_pool: Any, gelu: Any) -> SimpleNamespace:
    """Return the functions of a namespace that has NumPy's, and what it has not."""

    def normed(x: Any, axes: Any) -> Any:
        centred = x - xp.mean(x, axis=axes, keepdims=True)
        variance = xp.mean(centred * centred, axis=axes, keepdims=True)
        return centred / xp.sqrt(variance + EPSILON)

    def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
        return normed(x, (0, 2, 3)) * scale[:, None, None] + shift[:, None, None]

    def causal_attention(q: Any, k: Any, v: Any) -> Any:
        scores = xp.matmul(q * q.shape[-1] ** -0.5, xp.swapaxes(k, -1, -2))
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        return xp.matmul(softmax(xp.where(hidden, -math.inf, scores), -1), v)

    return SimpleNamespace(
        tanh=xp.tanh,
        relu=lambda x: xp.maximum(x, 0),
        gelu=gelu,
        reshape=xp.reshape,
        transpose=xp.transpose,
        thirds=lambda x: [x[0], x[1], x[2]],
        layer_norm=lambda x, scale, shift: normed(x, -1) * scale + shift,
        batch_norm=batch_norm,
        conv=conv,
        max_pool=max_pool,
        mean_of_pixels=lambda x: xp.mean(x, axis=(2, 3)),
        causal_attention=causal_attention,
        half_squared_norm=lambda x: 0.5 * xp.sum(x * x),
    )


# Loss and gradients -------------------------------------------------------------------------------


def installed(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


def steps(model: Model, parameters: Any, x: Any, threads: int) -> dict[str, Callable[[], Any]]:
    """Return what gives (loss, gradients) in every framework that is installed, by its name."""
    found: dict[str, Callable[[], Any]] = {}
    if installed("autograd"):
        import autograd

        loss = partial(model.loss, of_autograd())
        found["HIPS/autograd"] = partial(autograd.value_and_grad(loss), parameters, x)
    if installed("torch"):
        import torch

        torch.set_num_threads(threads)
        tensors = tc.tree.map_leaves(lambda a: torch.tensor(a, requires_grad=True), parameters)
        found["PyTorch"] = partial(torch_step, model, tensors, torch.tensor(x), False)
        found["PyTorch, checkpoints"] = partial(torch_step, model, tensors, torch.tensor(x), True)
    if installed("jax"):
        import jax

        program = jax.jit(jax.value_and_grad(partial(model.loss, of_jax())))
        arrays = jax.tree.map(jax.numpy.asarray, (parameters, x))

        def jax_step() -> Any:
            value, gradients = jax.block_until_ready(program(*arrays))
            return value, ordered(gradients, parameters)

        found["JAX, jit"] = jax_step
    return found


def ordered(tree: Any, like: Any) -> Any:
    """Return a nesting of JAX's, which sorts the keys of dicts, in the order of another."""
    if isinstance(like, dict):
        return {key: ordered(tree[key], value) for key, value in like.items()}
    return list(map(ordered, tree, like)) if isinstance(like, list) else tree


def torch_step(model: Model, parameters: Any, x: Any, again: bool) -> Any:
    """Return loss and gradients in PyTorch; with ``again`` every stage is checkpointed."""
    import torch
    from torch.utils.checkpoint import checkpoint

    n, h = of_torch(), x
    for stage in model.stages(n, parameters):
        h = checkpoint(stage, h, use_reentrant=False) if again else stage(h)
    loss = n.half_squared_norm(h)
    return loss, torch.autograd.grad(loss, tc.tree.leaves(parameters))


# A step of training -------------------------------------------------------------------------------


def training(model: Model, parameters: Any, x: Any, threads: int) -> dict[str, tuple[Any, Any]]:
    """Return (what takes a step of Adam, what gives the parameters) by framework."""
    found: dict[str, tuple[Any, Any]] = {}
    if installed("torch"):
        import torch

        torch.set_num_threads(threads)
        tensors = tc.tree.map_leaves(lambda a: torch.tensor(a, requires_grad=True), parameters)
        start = torch.tensor(x)
        optimizer = torch.optim.Adam(tc.tree.leaves(tensors), lr=1e-3)

        def torch_training() -> None:
            optimizer.zero_grad()
            model.loss(of_torch(), tensors, start).backward()
            optimizer.step()

        found["PyTorch"] = (
            torch_training,
            lambda: [t.detach().numpy() for t in tc.tree.leaves(tensors)],
        )
    if installed("jax"):
        found["JAX, jit"] = jax_training(model, parameters, x)
    return found


def jax_training(model: Model, parameters: Any, x: Any) -> tuple[Any, Any]:
    """Return the same in JAX, with the old state's memory given to the new one."""
    import jax
    import jax.numpy as jnp

    n = of_jax()

    def moved(p: Any, m: Any, v: Any, count: Any) -> Any:
        return p - 1e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

    def step(state: Any, x: Any) -> Any:
        p, m, v, count = state
        g = jax.grad(partial(model.loss, n))(p, x)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        p = jax.tree.map(lambda p, m, v: moved(p, m, v, count + 1), p, m, v)
        return p, m, v, count + 1

    program = jax.jit(step, donate_argnums=0)
    start = jax.tree.map(jnp.array, parameters)
    zeros = [jax.tree.map(jnp.zeros_like, start) for _ in range(2)]
    held = [(start, *zeros, jnp.zeros((), "float32"))]

    def take() -> None:
        held[0] = jax.block_until_ready(program(held[0], jnp.asarray(x)))

    return take, lambda: tc.tree.leaves(ordered(held[0][0], parameters))
