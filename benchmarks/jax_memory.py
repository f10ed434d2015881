"""Benchmark: memory of JAX functions as XLA assigns it, plain, under JAX's policies, and advised.

All peaks are temporaries and results by ``memory_analysis`` of ``jax.jit(jax.value_and_grad(f))``
on the CPU; nothing runs. Each policy of JAX is compiled with default options and with those that
make XLA:CPU save memory, and the lowest peak counts; the advice is asked for within that peak, and
within half of the plain one. FLOPs are those of the jaxpr, over plain.

    pip install jax
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import table

import tinyckpt as tc
from tinyckpt.base.units import size_text
from tinyckpt.interop import jax as tcj
from tinyckpt.interop.jax.advising import CPU_OPTIONS, FAST, RULES
from tinyckpt.interop.jax.costs import flops_of_jaxpr
from tinyckpt.interop.jax.memory import compiled_memory

SECONDS = 600.0  # for each advice: the machine, not the search, decides how many are compiled


def shape(*extents: int) -> Any:
    return jax.ShapeDtypeStruct(extents, "float32")


def mlp(layers: Any, x: Any) -> Any:
    for w, b in layers:
        x = jax.nn.relu(x @ w + b)
    return (x**2).mean()


def normalised(x: Any, axes: Any) -> Any:
    x = x - x.mean(axes, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(axes, keepdims=True) + 1e-5)


def convolved(x: Any, w: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def cnn(blocks: Any, x: Any) -> Any:
    for first, second in blocks:
        inner = jax.nn.relu(normalised(convolved(x, first), (0, 1, 2)))
        x = jax.nn.relu(x + normalised(convolved(inner, second), (0, 1, 2)))
    return (x.mean((1, 2)) ** 2).mean()


def block(weights: Any, x: Any) -> Any:
    batch, length, width = x.shape
    inner = normalised(x, -1)
    q, k, v = (jnp.reshape(inner @ weights[n], (batch, length, 4, width // 4)) for n in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / (width // 4) ** 0.5)
    x = x + jnp.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape) @ weights["o"]
    return x + jax.nn.gelu(normalised(x, -1) @ weights["up"]) @ weights["down"]


def transformer(blocks: Any, x: Any) -> Any:
    for weights in blocks:
        x = block(weights, x)
    return (x**2).mean()


def scanned(stacked: Any, x: Any) -> Any:
    x, _ = jax.lax.scan(lambda x, weights: (block(weights, x), None), x, stacked)
    return (x**2).mean()


def weights(width: int) -> dict[str, Any]:
    square = {name: shape(width, width) for name in "qkvo"}
    return {**square, "up": shape(width, 4 * width), "down": shape(4 * width, width)}


def recurrent(cell: Any, x: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(x @ cell["w"] + h @ cell["u"])
        return h * jax.nn.sigmoid(h @ cell["z"]), (h**2).mean()

    return jax.lax.scan(step, jnp.zeros((64, 64)), x)[1].mean()


STACK = {name: shape(8, *found.shape) for name, found in weights(64).items()}
NETWORKS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "recurrent, a scan of 50 steps": (
        recurrent, {name: shape(64, 64) for name in "wuz"}, shape(50, 64, 64),
    ),
    "CNN, a residual block": (cnn, [(shape(3, 3, 16, 16),) * 2], shape(8, 32, 32, 16)),
    "MLP, 3 layers": (mlp, [(shape(128, 128), shape(128))] * 3, shape(1024, 128)),
    "transformer, a scan of 8 layers": (scanned, STACK, shape(8, 64, 64)),
    "transformer, 1 layer": (transformer, [weights(64)], shape(8, 64, 64)),
}  # fmt: skip


def flops(function: Callable[..., Any], args: tuple[Any, Any]) -> int:
    return flops_of_jaxpr(jax.make_jaxpr(jax.value_and_grad(function))(*args))


def cells(network: tuple[Callable[..., Any], Any, Any]) -> list[str]:
    """Return a row: plain twice, the best policy, the advice within its peak, and within half."""
    function, *args = network
    plain = tcj.memory(jax.value_and_grad(function), *args)
    stored = flops(function, (args[0], args[1]))
    policies = []
    for rule in RULES:
        wrapped = jax.checkpoint(function, policy=getattr(jax.checkpoint_policies, rule))
        cost = flops(wrapped, (args[0], args[1])) / stored
        lowered = jax.jit(jax.value_and_grad(wrapped)).lower(*args)
        for options in (FAST, CPU_OPTIONS | FAST):
            found = compiled_memory(lowered, options)
            policies.append((found.peak, cost, rule.removesuffix("_saveable")))
    peak, cost, rule = min(policies)
    row = [size_text(plain.peak), f"{size_text(peak)}, {cost:.3f} ({rule})"]
    for budget in (peak, plain.peak // 2):
        try:
            advice = tcj.advise(function, *args, budget=budget, time_limit=SECONDS)
            assert advice.plain == plain
            gradient = jax.value_and_grad(advice.apply(function))
            options = advice.compiler_options
            measured = tcj.memory(gradient, *args, compiler_options=options).peak
            off = measured / advice.peak - 1
            row += [f"{size_text(advice.peak)}, x {advice.cost:.3f}", f"{off:.1%}"]
        except tc.BudgetError as error:
            row += [f"none: {size_text(error.smallest or 0)} is the smallest", ""]
    print(*row, sep=" | ", flush=True)
    return row


def main() -> None:
    header = [
        "network", "plain", "best policy of JAX", "advice within that peak", "XLA over advice",
        "advice within half of plain", "XLA over advice",
    ]  # fmt: skip
    rows = []
    for name, network in NETWORKS.items():
        rows.append([name, *cells(network)])
        text = table.rows(header, rows)  # written after each row, since all of them take minutes
        table.write("jax", "Memory of JAX functions, by XLA's buffer assignment", [text], ["jax"])


if __name__ == "__main__":
    main()
