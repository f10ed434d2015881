"""ReGELU2 and ReSiLU2 (Approx-BP): activations that save two bits per element for backward.

The forward pass is gelu or silu, exact to the last bit. The derivative is that of a piecewise
linear approximation (see ``gelu_silu_fits``), a step function with four values: a code of two
bits says which, and the backward pass reads only this code and the cotangent. **Gradients are
approximate**: close to 0 a slope is off by up to 0.55; integrated over all x the errors add up to
0.

The code has derivative 0, so a second derivative is that of a piecewise linear function, as for
ReLU: nothing from the activation itself. It is not gelu's or silu's.

Source: Yang et al., arXiv 2406.16282, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, apply_all
from tinyckpt.ops import kernels_approximate_activations as kernels_approximate
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.cache_blocking import span_length
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import PRIMITIVES
from tinyckpt.ops.gelu_silu_fits import checked_fit
from tinyckpt.ops.shape_inference import per_element

GELU, GELU_TANH, SILU = (PRIMITIVES[name] for name in ("gelu", "gelu_tanh", "silu"))


def infer_coded(x: Spec, **attrs: Any) -> tuple[Spec, ...]:
    infer.require_float(x)
    return (x, Spec(-(-x.size // 4), "uint8"))


def infer_step_vjp(codes: Spec, g: Spec, fit: str) -> tuple[Spec, ...]:
    infer.require_float(g)
    if codes != Spec(-(-g.size // 4), "uint8"):
        raise GraphError(f"the codes are {codes}; of {g} there are {-(-g.size // 4)} bytes")
    return (g,)


def coded_bytes(activation: Callable[..., int]) -> Callable[..., int]:
    """Return the workspace of an activation or that of encoding, whichever is larger.

    Encoding takes one byte per element, and a mask of one more, before both become the packed
    codes.
    """

    def workspace(inputs: Any, outputs: Any, **attrs: Any) -> int:
        y, codes = outputs
        flags = 4 * codes.nbytes + y.size
        return int(max(activation(inputs, outputs, **attrs), flags) - codes.nbytes)

    return workspace


def gelu_bytes(inputs: Any, outputs: Any, approximate: bool, fit: str) -> int:
    """Return the workspace of gelu, exact or approximate, in bytes."""
    nbytes: int = (GELU_TANH if approximate else GELU).workspace(inputs, outputs)
    return nbytes


def gelu_flops(inputs: Any, outputs: Any, approximate: bool, fit: str) -> int:
    """Count the FLOPs of gelu, exact or approximate, and three comparisons per element."""
    return (GELU_TANH if approximate else GELU).flops(inputs, outputs) + 3 * int(outputs[0].size)


def step_bytes(inputs: Any, outputs: Any, fit: str) -> int:
    """Return the workspace for one span: a byte per code, and the slope that the code selects."""
    return span_length(outputs[0].size, 4) * (1 + int(outputs[0].dtype.itemsize))


def step_vjp(name: str, kernel: Callable[..., Any]) -> Primitive:
    """Make the primitive ``(codes, g) -> slope g``: linear in g, and its own transpose."""
    primitive = Primitive(
        name, kernel, infer_step_vjp,
        vjp=(zero, lambda ct, ins, outs, fit: apply(primitive, ins[0], ct[0], fit=fit)),
        flops=per_element(1),
        workspace=step_bytes,
        contiguous=True,
    )  # fmt: skip
    return primitive


REGELU2_VJP = step_vjp("regelu2_vjp", kernels_approximate.regelu2_vjp)
RESILU2_VJP = step_vjp("resilu2_vjp", kernels_approximate.resilu2_vjp)
REGELU2 = Primitive(
    "regelu2", kernels_approximate.regelu2, infer_coded,  # x -> (y, codes)
    vjp=(
        lambda ct, ins, outs, approximate, fit: apply(REGELU2_VJP, outs[1], ct[0], fit=fit),
    ),
    flops=gelu_flops,
    workspace=coded_bytes(gelu_bytes),
)  # fmt: skip
RESILU2 = Primitive(
    "resilu2", kernels_approximate.resilu2, infer_coded,  # x -> (y, codes)
    vjp=(lambda ct, ins, outs, fit: apply(RESILU2_VJP, outs[1], ct[0], fit=fit),),
    flops=lambda inputs, outputs, fit: SILU.flops(inputs, outputs) + 3 * outputs[0].size,
    workspace=coded_bytes(lambda inputs, outputs, fit: SILU.workspace(inputs, outputs)),
)  # fmt: skip


@eager
def regelu2(x: Any, approximate: bool = False, *, fit: str = "published") -> Var:
    """GELU, exact to the last bit, with the derivative of a piecewise linear fit: a step function.

    The backward pass reads two bits per element, packed into ``ceil(size / 4)`` bytes. The slopes
    are about 0, -0.05, 1.05 and 1, and change at about -3.19, 0 and 3.19; at a breakpoint itself
    the slope is that on its left. NaN counts as left of all breakpoints: its slope is 0.

    Args:
        x: floats of any shape.
        approximate: whether gelu is the tanh formula.
        fit: ``"published"``, the paper's numbers; or ``"symmetric"``, those of the best fit.

    Raises:
        GraphError: if there is no such fit.

    Source: Yang et al., arXiv 2406.16282, section 4 (ReGELU2).

    >>> import numpy as np, tinyckpt as tc
    >>> x = np.array([-9.0, -1.0, 1.0, 9.0])
    >>> tc.grad(lambda x: tc.sum(tc.regelu2(x, fit="symmetric")))(x).round(4)
    array([ 0.    , -0.0496,  1.0496,  1.    ])
    """
    fit = checked_fit("regelu2", fit)
    return apply_all(REGELU2, x, approximate=bool(approximate), fit=fit)[0]


@eager
def resilu2(x: Any, *, fit: str = "published") -> Var:
    """SiLU, exact to the last bit, with the derivative of a piecewise linear fit: a step function.

    As ``regelu2``, with slopes of about 0, -0.04, 1.04 and 1 that change at about -6.3, 0 and 6.3.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.resilu2(x)))(np.array([-9.0, -1.0, 1.0, 9.0])).round(4)
    array([ 0.    , -0.0406,  1.0403,  1.    ])

    Source: Yang et al., arXiv 2406.16282, section 4 (ReSiLU2).
    """
    return apply_all(RESILU2, x, fit=checked_fit("resilu2", fit))[0]
