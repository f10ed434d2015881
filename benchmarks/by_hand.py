"""Baseline: loss and gradients of the benchmark models, written by hand in NumPy.

Carefully written: in place where the old value is dead, one im2col buffer for the columns of one
image, and no recomputation of anything that fits into memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPSILON = 1e-5
SCALE, CUBIC = math.sqrt(2 / math.pi), 0.044715


# A perceptron -------------------------------------------------------------------------------------


def perceptron(layers: Any, x: Any) -> tuple[Any, Any]:
    """Return loss and gradients of ``tanh(h w + b)``, layer after layer."""
    hs = [x]
    for layer in layers:
        h = hs[-1] @ layer["w"]
        h += layer["b"]
        np.tanh(h, out=h)
        hs.append(h)
    g = hs[-1]
    loss = 0.5 * np.vdot(g, g)
    gradients: list[Any] = []
    for layer in reversed(layers):
        h = hs.pop()
        slope = h * h
        np.subtract(1, slope, out=slope)
        slope *= g
        gradients.append({"w": hs[-1].T @ slope, "b": slope.sum(0)})
        if len(hs) > 1:
            g = slope @ layer["w"].T
    return loss, gradients[::-1]


def adam(state: Any, gradients: Any, rate: float = 1e-3) -> None:
    """Take a step of Adam in place; the state is {step, and lists of p, m, v}."""
    state["step"] += 1
    first, second = 1 - 0.9 ** state["step"], 1 - 0.999 ** state["step"]
    for p, m, v, g in zip(state["p"], state["m"], state["v"], gradients, strict=True):
        m *= 0.9
        m += 0.1 * g
        v *= 0.999
        g *= g
        g *= 0.001
        v += g
        np.divide(v, second, out=g)
        np.sqrt(g, out=g)
        g += 1e-8
        np.divide(m, g, out=g)
        g *= rate / first
        p -= g


# A block of GPT-2 ---------------------------------------------------------------------------------


def layer_norm(x: Any, p: Any) -> tuple[Any, Any, Any]:
    """Return the result, and the residuals: x normalised, and 1 / sqrt(variance)."""
    normal = x - x.mean(-1, keepdims=True)
    spread = np.einsum("ij,ij->i", normal, normal)[:, None]
    spread /= x.shape[-1]
    spread += EPSILON
    np.sqrt(spread, out=spread)
    normal /= spread
    y = normal * p["scale"]
    y += p["shift"]
    return y, normal, spread


def layer_norm_backward(normal: Any, spread: Any, p: Any, g: Any) -> tuple[Any, Any]:
    """Return the cotangent of x, and the gradients of scale and shift."""
    gradients = {"scale": np.einsum("ij,ij->j", g, normal), "shift": g.sum(0)}
    g = g * p["scale"]
    along = np.einsum("ij,ij->i", g, normal)[:, None] / g.shape[-1]
    g -= g.mean(-1, keepdims=True)
    g -= normal * along
    g /= spread
    return g, gradients


def affine(x: Any, p: Any) -> Any:
    """Return ``x w + b``."""
    y = x @ p["w"]
    y += p["b"]
    return y


def affine_backward(x: Any, p: Any, g: Any) -> tuple[Any, Any]:
    """Return the cotangent of x, and the gradients of w and b."""
    return g @ p["w"].T, {"w": x.T @ g, "b": g.sum(0)}


def gelu_tanh(x: Any) -> Any:
    """Return tanh(scale (x + cubic x^3))."""
    t = x * x
    t *= SCALE * CUBIC
    t += SCALE
    t *= x
    return np.tanh(t, out=t)


def gelu_backward(x: Any, t: Any, g: Any) -> Any:
    """Return g (1 + t + x (1 - t^2) u') / 2, in the memory of t."""
    slope = x * x
    slope *= 3 * SCALE * CUBIC
    slope += SCALE
    slope *= x
    square = t * t
    np.subtract(1, square, out=square)
    slope *= square
    t += 1
    t += slope
    t *= 0.5
    t *= g
    return t


def gpt_block(p: Any, x: Any, batch: int, heads: int) -> tuple[Any, Any]:
    """Return loss and gradients of causal attention and an MLP."""
    rows, width = x.shape
    length, d = rows // batch, width // heads
    y1, n1, s1 = layer_norm(x, p["norm1"])
    joint = affine(y1, p["joint"]).reshape(batch, length, 3, heads, d).transpose(2, 0, 3, 1, 4)
    q, k, v = joint
    q = q * d**-0.5
    weights = q @ k.mT
    weights[..., np.triu(np.ones((length, length), bool), 1)] = -math.inf
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(rows, width)
    h = affine(mixed, p["out"])
    h += x
    y2, n2, s2 = layer_norm(h, p["norm2"])
    u = affine(y2, p["hidden"])
    t = gelu_tanh(u)
    a = t + 1
    a *= u
    a *= 0.5
    out = affine(a, p["back"])
    out += h
    loss = 0.5 * np.vdot(out, out)

    gradients: Any = {}
    g, gradients["back"] = affine_backward(a, p["back"], out)
    g, gradients["hidden"] = affine_backward(y2, p["hidden"], gelu_backward(u, t, g))
    g, gradients["norm2"] = layer_norm_backward(n2, s2, p["norm2"], g)
    g += out
    g, gradients["out"] = affine_backward(mixed, p["out"], g)
    g = g.reshape(batch, length, heads, d).transpose(0, 2, 1, 3)
    joined = np.empty((batch, length, 3, heads, d), x.dtype)
    gq, gk, gv = joined.transpose(2, 0, 3, 1, 4)
    gv[...] = weights.mT @ g
    scores = g @ v.mT
    scores *= weights
    weights *= scores.sum(-1, keepdims=True)
    scores -= weights
    np.multiply(scores @ k, d**-0.5, out=gq)
    gk[...] = scores.mT @ q
    g, gradients["joint"] = affine_backward(y1, p["joint"], joined.reshape(rows, 3 * width))
    gradients["norm1"] = layer_norm_backward(n1, s1, p["norm1"], g)[1]
    return loss, {key: gradients[key] for key in p}


# A block of convolutions --------------------------------------------------------------------------


def fill(columns: Any, image: Any) -> Any:
    """Write into ``columns`` what every window of 3x3 sees; return them as a matrix.

    The borders of ``columns`` that see the padding are 0 and stay so.
    """
    for i in range(3):
        for j in range(3):
            inside, seen = parts(i, j, image.shape[-2:])
            columns[(slice(None), i, j, *inside)] = image[(slice(None), *seen)]
    return columns.reshape(columns.shape[0] * 9, -1)


def parts(i: int, j: int, extents: Any) -> tuple[Any, Any]:
    """Return which windows have pixels at (i, j), and which pixels those are."""
    height, width = extents
    inside = (
        slice(max(0, 1 - i), height - max(0, i - 1)),
        slice(max(0, 1 - j), width - max(0, j - 1)),
    )
    seen = slice(max(0, i - 1), height - max(0, 1 - i)), slice(max(0, j - 1), width - max(0, 1 - j))
    return inside, seen


def conv(x: Any, w: Any) -> Any:
    """Return a 3x3 convolution, image by image: the columns of one fit in the cache."""
    y = np.empty((x.shape[0], w.shape[0], *x.shape[2:]), x.dtype)
    columns = np.zeros((x.shape[1], 3, 3, *x.shape[2:]), x.dtype)
    matrix = w.reshape(len(w), -1)
    for image, result in zip(x, y, strict=True):
        np.matmul(matrix, fill(columns, image), out=result.reshape(len(w), -1))
    return y


def conv_backward(x: Any, w: Any, g: Any, wanted: bool) -> tuple[Any, Any]:
    """Return the cotangent of x, if requested, and the gradient of w."""
    total = np.zeros((len(w), w[0].size), x.dtype)
    columns = np.zeros((x.shape[1], 3, 3, *x.shape[2:]), x.dtype)
    for image, cotangent in zip(x, g, strict=True):
        total += cotangent.reshape(len(w), -1) @ fill(columns, image).T
    # The adjoint is a convolution with the weight turned upside down.
    turned = np.ascontiguousarray(w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    return conv(g, turned) if wanted else None, total.reshape(w.shape)


def batch_norm(x: Any, p: Any) -> tuple[Any, Any, Any]:
    """Return the result and the residuals; x is overwritten."""
    x -= x.mean((0, 2, 3), keepdims=True)
    spread = np.einsum("nchw,nchw->c", x, x)[:, None, None]
    spread /= x.size // x.shape[1]
    spread += EPSILON
    np.sqrt(spread, out=spread)
    x /= spread
    y = x * p["scale"][:, None, None]
    y += p["shift"][:, None, None]
    return y, x, spread


def batch_norm_backward(normal: Any, spread: Any, p: Any, g: Any) -> tuple[Any, Any]:
    """Return the cotangent of x and the gradients of scale and shift; overwrites ``normal``."""
    shift = g.sum((0, 2, 3))
    scale = np.einsum("nchw,nchw->c", g, normal)
    count = normal.size // normal.shape[1]
    normal *= (scale / count)[:, None, None]
    normal += (shift / count)[:, None, None]
    np.subtract(g, normal, out=normal)
    normal *= p["scale"][:, None, None] / spread
    return normal, {"scale": scale, "shift": shift}


def conv_block(p: Any, x: Any) -> tuple[Any, Any]:
    """Return loss and gradients of ResNet's basic block."""
    y, n1, s1 = batch_norm(conv(x, p[0]["w"]), p[0])
    h = np.maximum(y, 0, out=y)
    y, n2, s2 = batch_norm(conv(h, p[1]["w"]), p[1])
    y += x
    out = np.maximum(y, 0, out=y)
    loss = 0.5 * np.vdot(out, out)
    # The cotangent of the sum is out where out > 0: out itself.
    g, second = batch_norm_backward(n2, s2, p[1], out)
    g, w2 = conv_backward(h, p[1]["w"], g, True)
    g *= h > 0
    g, first = batch_norm_backward(n1, s1, p[0], g)
    w1 = conv_backward(x, p[0]["w"], g, False)[1]
    return loss, [{"w": w1, **first}, {"w": w2, **second}]
