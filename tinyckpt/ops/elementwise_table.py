"""Elementwise functions as one table of formulas: value, derivatives, dtypes, text and example.

A row serves everything. From its NumPy expressions ``kernels_elementwise`` makes kernels, with
their FLOPs and workspace; ``elementwise`` makes the primitives and the public function with its
docstring; NumPy's protocols, the compiled source and the tests read the rows, too. A kernel that is
no expression, or one in place that needs care, is written out in ``kernels_activation``.

Source: the form is that of PyTorch's ``tools/autograd/derivatives.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tinyckpt.ops import kernels_activation as kernels


class Kernel(NamedTuple):
    """A kernel with what one evaluation costs.

    Attributes:
        function: ``(xp, *arrays, **attrs)`` -> an array.
        flops: arithmetic operations per element, a library call as one.
        arrays: temporaries like the output.
        masks: temporaries of one boolean per element.
    """

    function: Callable[..., Any]
    flops: int
    arrays: int = 0
    masks: int = 0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A row: one elementwise function, or one operator of a derivative.

    Attributes:
        name: of the primitive, and of the public function.
        value: NumPy expression of the operands, or a kernel; "" in a row of a slope alone.
        text: first paragraphs of the docstring; "" if no public function is made from the row.
        example: arguments of the docstring's example, or the whole of it if it begins with "tc.".
        shows: what the example prints.
        slope: NumPy expression of ``g`` times the derivative, or a kernel: the function's one
            backward operator.
        reads: what the slope is a function of besides ``g``: the input ``x`` or the output ``y``.
        second: the second derivative as a function of the same, over traced values; "None" if it
            is 0.
        composed: instead of ``value`` and derivatives, the function of others of the table, over
            traced values: it has no primitive of its own.
        vjp: the cotangent of each operand, over traced values: of the operands, the output ``out``
            and its cotangent ``ct``; "None" if it is 0. By default the operator of the slope.
        of: the operands.
        attrs: the attributes.
        dtypes: what it takes. "promoted": floats, and integers as the floats in which NumPy
            computes; "floats"; "numbers"; "rounded": numbers, of which integers stay as they are;
            "any": of everything, booleans; "bits": integers and booleans; "integers".
        domain: what a test draws: "reals"; "positive"; "above 1"; "inside", from -1 to 1; "kinked",
            apart from 0, integers and ties; "quotients", apart from integers; "truth", booleans;
            "special", NaN and infinities too.
    """

    name: str
    value: str | Kernel
    text: str = ""
    example: str = ""
    shows: str = ""
    slope: str | Kernel = ""
    reads: str = "x"
    second: str = ""
    composed: str = ""
    vjp: tuple[str, ...] = ()
    of: str = "x"
    attrs: str = ""
    dtypes: str = "promoted"
    domain: str = "reals"


# Arithmetic, exp, log, roots, sine and cosine, extrema.
ARITHMETIC = (
    Elementwise(
        "add", "x + y", "Elementwise sum, ``x + y``.",
        "np.array([1.0, 2.0]), 3.0", "array([4., 5.])",
        vjp=("ct", "ct"), of="x, y", dtypes="numbers",
    ),
    Elementwise(
        "subtract", "x - y", "Elementwise difference, ``x - y``.",
        "np.array([1.0, 2.0]), 3.0", "array([-2., -1.])",
        vjp=("ct", "-ct"), of="x, y", dtypes="numbers",
    ),
    Elementwise(
        "multiply", "x * y", "Elementwise product, ``x * y``.",
        "tc.grad(lambda x, y: tc.sum(tc.multiply(x, y)))(np.array([1.0, 2.0]),"
        " np.array([3.0, 4.0]))", "array([3., 4.])",
        vjp=("ct * y", "ct * x"), of="x, y", dtypes="numbers",
    ),
    Elementwise(
        "divide", "x / y", "Elementwise quotient, ``x / y``.",
        "np.array([1, 2]), 4", "array([0.25, 0.5 ])",
        vjp=("ct / y", "divide_vjp(y, out, ct)"), of="x, y", domain="positive",
    ),
    Elementwise(
        "negative", "-x", "Elementwise negation, ``-x``.",
        "np.array([1.0, -2.0])", "array([-1.,  2.])",
        vjp=("-ct",), dtypes="numbers",
    ),
    Elementwise(
        "exp", "xp.exp(x)", "Exponential of every element; its derivative reads the output.",
        "np.array([0.0, 1.0])", "array([1.        , 2.71828183])",
        vjp=("ct * out",),
    ),
    Elementwise(
        "log", "xp.log(x)", "Natural logarithm of every element.",
        "np.array([1.0, 2.0])", "array([0.        , 0.69314718])",
        vjp=("ct / x",), domain="positive",
    ),
    Elementwise(
        "sqrt", "xp.sqrt(x)", "Square root of every element.",
        "np.array([4.0, 9.0])", "array([2., 3.])",
        slope="0.5 * g / y", reads="y", second="-0.5 / (y * y)", domain="positive",
    ),
    Elementwise(
        "sin", "xp.sin(x)", "Sine of every element, in radians.",
        "np.array([0.0, 1.0])", "array([0.        , 0.84147098])",
        slope="xp.cos(x) * g", second="-sin(x)",
    ),
    Elementwise(
        "cos", "xp.cos(x)", "Cosine of every element, in radians.",
        "np.array([0.0, 1.0])", "array([1.        , 0.54030231])",
        slope="-(xp.sin(x) * g)", second="-cos(x)",
    ),
    Elementwise(
        "absolute", "xp.absolute(x)",
        "Absolute value of every element; its derivative at 0 is taken as 0.",
        "tc.grad(lambda x: tc.sum(tc.absolute(x)))(np.array([-2.0, 0.0, 3.0]))",
        "array([-1.,  0.,  1.])",
        slope="xp.sign(x) * g", second="None", dtypes="numbers", domain="kinked",
    ),
    Elementwise(
        "maximum", "xp.maximum(x, y)",
        "Elementwise maximum of two arrays; in a tie, each gets half of the cotangent.",
        "tc.grad(lambda x: tc.sum(tc.maximum(x, 1.0)))(np.array([0.0, 1.0, 2.0]))",
        "array([0. , 0.5, 1. ])",
        vjp=("larger_vjp(x, y, ct)", "larger_vjp(y, x, ct)"), of="x, y", dtypes="numbers",
        domain="kinked",
    ),
    Elementwise(
        "minimum", "xp.minimum(x, y)",
        "Elementwise minimum of two arrays; in a tie, each gets half of the cotangent.",
        "np.array([0.0, 2.0]), 1.0", "array([0., 1.])",
        vjp=("larger_vjp(y, x, ct)", "larger_vjp(x, y, ct)"), of="x, y", dtypes="numbers",
        domain="kinked",
    ),
    # An exponent that is a number, and one that is an array: the function is ``power``.
    Elementwise(
        "power", "x ** exponent", attrs="exponent", dtypes="numbers",
        slope="x ** (exponent - 1) * exponent * g", second="power_slope(x, exponent)",
        vjp=("None if exponent == 0 else power_vjp(x, ct, exponent=exponent)",),
    ),
    Elementwise(
        "powers", "x ** y", of="x, y", dtypes="numbers",
        vjp=("vjp_powers_base(x, y, ct)", "vjp_powers_exponent(x, out, ct)"),
    ),
)  # fmt: skip

# Functions by NumPy's names: exponentials and logarithms, trigonometry, hyperbolic functions.
FUNCTIONS = (
    Elementwise(
        "exp2", "xp.exp2(x)", "Base-2 exponential, ``2 ** x``, of every element.",
        "np.array([0.0, 3.0])", "array([1., 8.])",
        slope="y * math.log(2) * g", reads="y", second="math.log(2)",
    ),
    # The derivative from x: 1 + expm1(x) loses all digits of exp(x) where that is small.
    Elementwise(
        "expm1", "xp.expm1(x)", "``exp(x) - 1`` of every element, to full precision near 0.",
        "np.array([0.0, 1e-20])", "array([0.e+00, 1.e-20])",
        slope="xp.exp(x) * g", second="exp(x)",
    ),
    Elementwise(
        "log2", "xp.log2(x)", "Base-2 logarithm of every element.",
        "np.array([1.0, 8.0])", "array([0., 3.])",
        vjp=("logarithm_vjp(x, ct, base=2)",), domain="positive",
    ),
    Elementwise(
        "log10", "xp.log10(x)", "Base-10 logarithm of every element.",
        "np.array([1.0, 100.0])", "array([0., 2.])",
        vjp=("logarithm_vjp(x, ct, base=10)",), domain="positive",
    ),
    Elementwise(
        "log1p", "xp.log1p(x)", "``log(1 + x)`` of every element, to full precision near 0.",
        "np.array([0.0, 1e-20])", "array([0.e+00, 1.e-20])",
        slope="g / (1 + x)", second="-1 / (1 + x) ** 2", domain="positive",
    ),
    Elementwise(
        "logaddexp", "xp.logaddexp(x, y)", "``log(exp(x) + exp(y))``, evaluated without overflow.",
        "np.array([0.0, 1000.0]), np.array([0.0, 0.0])", "array([6.93147181e-01, 1.00000000e+03])",
        vjp=("ct * exp(x - out)", "ct * exp(y - out)"), of="x, y",
    ),
    Elementwise(
        "softplus", Kernel(kernels.softplus, flops=3),
        "Softplus, ``log(1 + exp(x))``, of every element, evaluated without overflow.",
        "np.array([0.0, 1000.0])", "array([6.93147181e-01, 1.00000000e+03])",
        slope=Kernel(kernels.softplus_vjp, flops=7, arrays=1, masks=1),  # exponential, sign
        second="sigmoid_slope(x)",
    ),
    Elementwise(
        "tan", "xp.tan(x)", "Tangent of every element, in radians.",
        "np.array([0.0, 1.0])", "array([0.        , 1.55740772])",
        slope="(y * y + 1) * g", reads="y", second="2 * y", domain="inside",
    ),
    # 1 - x^2 as (1 - x) (1 + x), which keeps its digits near the ends.
    Elementwise(
        "arcsin", "xp.arcsin(x)", "Inverse sine of every element, from -pi/2 to pi/2.",
        "np.array([0.0, 1.0])", "array([0.        , 1.57079633])",
        slope="g / xp.sqrt((1 - x) * (1 + x))", second="x / (1 - x * x) ** 1.5", domain="inside",
    ),
    Elementwise(
        "arccos", "xp.arccos(x)", "Inverse cosine of every element, from 0 to pi.",
        "np.array([1.0, 0.0])", "array([0.        , 1.57079633])",
        slope="-(g / xp.sqrt((1 - x) * (1 + x)))", second="-(x / (1 - x * x) ** 1.5)",
        domain="inside",
    ),
    Elementwise(
        "arctan", "xp.arctan(x)", "Inverse tangent of every element, from -pi/2 to pi/2.",
        "np.array([0.0, 1.0])", "array([0.        , 0.78539816])",
        slope="g / (x * x + 1)", second="-2 * x / (1 + x * x) ** 2",
    ),
    Elementwise(
        "hypot", "xp.hypot(x, y)",
        "Hypotenuse, ``sqrt(x * x + y * y)``, without overflow; no derivative at the origin.",
        "np.array([3.0, 3e200]), np.array([4.0, 4e200])", "array([5.e+000, 5.e+200])",
        vjp=("hypot_vjp(x, out, ct)", "hypot_vjp(y, out, ct)"), of="x, y",
    ),
    Elementwise(
        "sinh", "xp.sinh(x)", "Hyperbolic sine of every element.",
        "np.array([0.0, 1.0])", "array([0.        , 1.17520119])",
        slope="xp.cosh(x) * g", second="sinh(x)",
    ),
    Elementwise(
        "cosh", "xp.cosh(x)", "Hyperbolic cosine of every element.",
        "np.array([0.0, 1.0])", "array([1.        , 1.54308063])",
        slope="xp.sinh(x) * g", second="cosh(x)",
    ),
    Elementwise(
        "arcsinh", "xp.arcsinh(x)", "Inverse hyperbolic sine of every element.",
        "np.array([0.0, 1.0])", "array([0.        , 0.88137359])",
        slope="g / xp.hypot(x, xp.ones((), x.dtype))", second="-x / (1 + x * x) ** 1.5",
    ),
    # sqrt(x^2 - 1) as sqrt(x - 1) sqrt(x + 1): no overflow, and all digits near 1.
    Elementwise(
        "arccosh", "xp.arccosh(x)",
        "Inverse hyperbolic cosine of every element, which must be at least 1.",
        "np.array([1.0, 2.0])", "array([0.       , 1.3169579])",
        slope="g / (xp.sqrt(x - 1) * xp.sqrt(x + 1))", second="-x / (x * x - 1) ** 1.5",
        domain="above 1",
    ),
    Elementwise(
        "arctanh", "xp.arctanh(x)",
        "Inverse hyperbolic tangent of every element, which must be between -1 and 1.",
        "np.array([0.0, 0.5])", "array([0.        , 0.54930614])",
        slope="g / ((1 - x) * (1 + x))", second="2 * x / (1 - x * x) ** 2", domain="inside",
    ),
    Elementwise(
        "cbrt", "xp.cbrt(x)", "Cube root of every element.",
        "np.array([-8.0, 27.0])", "array([-2.,  3.])",
        slope="g / (y * y * 3)", reads="y", second="-2 / (3 * y**3)", domain="positive",
    ),
    Elementwise(
        "arctan2", "xp.arctan2(x, y)", of="x, y",
        vjp=("arctan2_vjp(x, y, ct)", "-arctan2_vjp(y, x, ct)"),
    ),
    Elementwise(
        "square", "", "Square of every element.",
        "tc.grad(lambda x: tc.sum(tc.square(x)))(np.array([1.0, 3.0]))", "array([2., 6.])",
        composed="power(x, 2)", dtypes="numbers",
    ),
    Elementwise(
        "reciprocal", "",
        "Reciprocal, ``1 / x``; floats for integers, where NumPy divides integers.",
        "np.array([2, 4])", "array([0.5 , 0.25])", composed="divide(1, x)", dtypes="numbers",
    ),
    Elementwise(
        "deg2rad", "", "Convert degrees to radians.",
        "np.array([0.0, 180.0])", "array([0.        , 3.14159265])",
        composed="multiply(x, math.pi / 180)",
    ),
    Elementwise(
        "rad2deg", "", "Convert radians to degrees.",
        "np.array([0.0, np.pi])", "array([  0., 180.])", composed="multiply(x, 180 / math.pi)",
    ),
)  # fmt: skip

# The normal distribution's FLOPs: 3 for each of 27 coefficients of Clenshaw's recurrence, 5 before
# and 4 after it; 13 for the density, and 6 from there to the result.
CDF_FLOPS = 3 * 27 + 5 + 4 + 13 + 6

ACTIVATIONS = (
    Elementwise(
        "tanh", "xp.tanh(x)", "Hyperbolic tangent of every element; its derivative reads the"
        " output.",
        "np.array([0.0, 1.0])", "array([0.        , 0.76159416])",
        slope="(1 - y * y) * g", reads="y", second="-2 * y",
    ),
    Elementwise(
        # The temporaries: 1 + exp(-|x|), and the mask that selects the numerator.
        "sigmoid", Kernel(kernels.sigmoid, flops=7, arrays=1, masks=1),
        "Logistic sigmoid, ``1 / (1 + exp(-x))``, of every element, evaluated without overflow.",
        "np.array([-1000.0, 0.0, 1.0])", "array([0.        , 0.5       , 0.73105858])",
        slope="(1 - y) * y * g", reads="y", second="1 - 2 * y", dtypes="floats",
    ),
    Elementwise(
        # Both terms have the same sign, so there is no cancellation.
        "log_sigmoid", "xp.minimum(x, 0) - xp.log1p(xp.exp(-xp.absolute(x)))",
        "Logarithm of the sigmoid of every element, exact in both tails.",
        "np.array([-1000.0, 0.0])", "array([-1.00000000e+03, -6.93147181e-01])",
        # 1 - sigmoid = 1 - exp(y): a function of the output, exact where y is close to 0.
        slope="-(xp.expm1(y) * g)", reads="y", second="-exp(y)", dtypes="floats",
    ),
    Elementwise(
        "relu", "xp.maximum(x, 0)",
        "Rectified linear unit, ``max(x, 0)``, of every element; its derivative at 0 is taken as"
        " 0.",
        "tc.grad(lambda x: tc.sum(tc.relu(x)))(np.array([-1.0, 0.0, 2.0]))",
        "array([0., 0., 1.])",
        slope=Kernel(kernels.relu_vjp, flops=1, masks=1), reads="y", second="None", dtypes="floats",
    ),
    Elementwise(
        # The temporary: the factor for the far negative tail.
        "silu", Kernel(kernels.silu, flops=9, arrays=1),
        "Sigmoid linear unit (SiLU, swish), ``x sigmoid(x)``, of every element.",
        "np.array([-1.0, 0.0, 1.0])", "array([-0.26894142,  0.        ,  0.73105858])",
        # 1 + exp(-|x|), the derivative's other factor, and the mask that selects its numerator.
        slope=Kernel(kernels.silu_vjp, flops=20, arrays=2, masks=1),
        second="silu_slope(x)", dtypes="floats",
    ),
    Elementwise(
        # The temporaries: two for the recurrence and two for the density; the derivative also needs
        # four, after those of the distribution are freed. Its FLOPs: the density once more, and 4
        # to combine both.
        "gelu", Kernel(kernels.gelu, flops=CDF_FLOPS + 1, arrays=4), dtypes="floats",
        slope=Kernel(kernels.gelu_vjp, flops=CDF_FLOPS + 13 + 4, arrays=4),
        second="normal_density(x) * (2 - x * x)",
    ),
    Elementwise(
        "gelu_tanh", Kernel(kernels.gelu_tanh, flops=8), dtypes="floats",
        slope=Kernel(kernels.gelu_tanh_vjp, flops=14, arrays=1),  # the tanh
        second="gelu_tanh_slope(x)",
    ),
)  # fmt: skip

COMPARISONS = tuple(
    Elementwise(
        name, f"x {sign} y", f"Elementwise ``x {sign} y``, boolean.",
        f"np.array([1, 2]), np.array({right})", f"array([{shown}])", of="x, y", dtypes="any",
    )
    for name, sign, right, shown in (
        ("greater", ">", [2, 1], "False,  True"),
        ("greater_equal", ">=", [2, 2], "False,  True"),
        ("less", "<", [2, 1], " True, False"),
        ("less_equal", "<=", [2, 2], " True,  True"),
        ("equal", "==", [2, 2], "False,  True"),
        ("not_equal", "!=", [2, 2], " True, False"),
    )
)  # fmt: skip

LOGIC = (
    Elementwise(
        "logical_and", "xp.logical_and(x, y)", "Elementwise logical AND.",
        "np.array([True, True]), np.array([True, False])", "array([ True, False])",
        of="x, y", dtypes="any", domain="truth",
    ),
    Elementwise(
        "logical_or", "xp.logical_or(x, y)", "Elementwise logical OR.",
        "np.array([False, False]), np.array([True, False])", "array([ True, False])",
        of="x, y", dtypes="any", domain="truth",
    ),
    Elementwise(
        "logical_xor", "xp.logical_xor(x, y)", "Elementwise exclusive OR.",
        "np.array([True, True]), np.array([True, False])", "array([False,  True])",
        of="x, y", dtypes="any", domain="truth",
    ),
    Elementwise(
        "logical_not", "xp.logical_not(x)", "Elementwise logical NOT.",
        "np.array([True, False])", "array([False,  True])", dtypes="any", domain="truth",
    ),
    Elementwise(
        "isnan", "xp.isnan(x)", "Whether each element is NaN.",
        "np.array([1.0, np.nan])", "array([False,  True])", dtypes="any", domain="special",
    ),
    Elementwise(
        "isinf", "xp.isinf(x)", "Whether each element is infinite.",
        "np.array([1.0, np.inf, np.nan])", "array([False,  True, False])", dtypes="any",
        domain="special",
    ),
    Elementwise(
        "isfinite", "xp.isfinite(x)", "Whether each element is finite: neither infinite nor NaN.",
        "np.array([1.0, np.inf, np.nan])", "array([ True, False, False])", dtypes="any",
        domain="special",
    ),
    Elementwise(
        "signbit", "xp.signbit(x)",
        "Whether the sign bit of each element is set, as for negative numbers and -0.0.",
        "np.array([1.0, -0.0])", "array([False,  True])", dtypes="any", domain="special",
    ),
    Elementwise(
        "bitwise_and", "x & y", "Bitwise AND, ``x & y``, of integers or booleans.",
        "np.array([12, 5]), 4", "array([4, 4])", of="x, y", dtypes="bits",
    ),
    Elementwise(
        "bitwise_or", "x | y", "Bitwise OR, ``x | y``, of integers or booleans.",
        "np.array([8, 1]), 4", "array([12,  5])", of="x, y", dtypes="bits", domain="truth",
    ),
    Elementwise(
        "bitwise_xor", "x ^ y", "Bitwise exclusive OR, ``x ^ y``, of integers or booleans.",
        "np.array([12, 5]), 4", "array([8, 1])", of="x, y", dtypes="bits",
    ),
    Elementwise(
        "invert", "~x", "Bitwise NOT, ``~x``, of integers or booleans.",
        "np.array([0, 1])", "array([-1, -2])", dtypes="bits",
    ),
    Elementwise(
        "left_shift", "x << y", "Left shift, ``x << y``, of integers.",
        "np.array([1, 3]), 2", "array([ 4, 12])", of="x, y", dtypes="integers",
    ),
    Elementwise(
        "right_shift", "x >> y", "Right shift, ``x >> y``, of integers.",
        "np.array([4, 13]), 2", "array([1, 3])", of="x, y", dtypes="integers",
    ),
)  # fmt: skip

ROUNDING = (
    Elementwise(
        "sign", "xp.sign(x)", "Sign of every element, -1, 0 or 1; its derivative is taken as 0.",
        "np.array([-2.0, 0.0, 3.0])", "array([-1.,  0.,  1.])", vjp=("None",), dtypes="numbers",
        domain="kinked",
    ),
    Elementwise(
        "floor", "xp.floor(x)",
        "Largest integer not above every element; its derivative is taken as 0.",
        "np.array([-1.5, 1.5])", "array([-2.,  1.])", vjp=("None",), dtypes="rounded",
        domain="kinked",
    ),
    Elementwise(
        "ceil", "xp.ceil(x)",
        "Smallest integer not below every element; its derivative is taken as 0.",
        "np.array([-1.5, 1.5])", "array([-1.,  2.])", vjp=("None",), dtypes="rounded",
        domain="kinked",
    ),
    Elementwise(
        "trunc", "xp.trunc(x)",
        "Integer part of every element, rounded toward zero; its derivative is taken as 0.",
        "np.array([-1.5, 1.5])", "array([-1.,  1.])", vjp=("None",), dtypes="rounded",
        domain="kinked",
    ),
    Elementwise(
        "round", "xp.round(x, decimals)", vjp=("None",), attrs="decimals", dtypes="numbers"
    ),
    Elementwise(
        "floor_divide", "x // y", "Floor division, ``x // y``; its derivatives are taken as 0.",
        "np.array([-7, 7]), 2", "array([-4,  3])",
        vjp=("None", "None"), of="x, y", dtypes="numbers", domain="quotients",
    ),
    # x - y floor(x / y): linear in x with slope 1; the slope in y is minus the floored quotient.
    Elementwise(
        "remainder", "x % y",
        "Remainder of floor division, ``x % y``, with the sign of ``y``.\n\n"
        "At a jump the derivative is that next to it.",
        "np.array([-7, 7]), 3", "array([2, 1])",
        vjp=("ct", "-(ct * floor_divide(x, y))"), of="x, y", dtypes="numbers", domain="quotients",
    ),
    Elementwise(
        "fmod", "xp.fmod(x, y)",
        "Remainder of truncated division of ``x`` by ``y``, with the sign of ``x``.",
        "np.array([-7.0, 7.0]), 3.0", "array([-1.,  1.])",
        vjp=("ct", "-(ct * trunc(x / y))"), of="x, y", dtypes="numbers", domain="quotients",
    ),
    Elementwise(
        "fmax", "", "Elementwise maximum that ignores NaN: the other operand where one is NaN.",
        "np.array([1.0, np.nan]), np.array([2.0, 3.0])", "array([2., 3.])",
        composed="where(isnan(x), y, where(isnan(y), x, maximum(x, y)))", of="x, y",
        dtypes="numbers",
    ),
    Elementwise(
        "fmin", "", "Elementwise minimum that ignores NaN: the other operand where one is NaN.",
        "np.array([1.0, np.nan]), np.array([2.0, 3.0])", "array([1., 3.])",
        composed="where(isnan(x), y, where(isnan(y), x, minimum(x, y)))", of="x, y",
        dtypes="numbers",
    ),
)  # fmt: skip

# Backward operators that are not the slope of one function.
DERIVATIVES = (
    Elementwise(  # of both logarithms
        "logarithm", "", slope="g / x / math.log(base)",
        second="-1 / (math.log(base) * x * x)", attrs="base",
    ),
    Elementwise(  # the cotangent of the denominator
        "divide_vjp", "-(g * quotient / y)", of="y, quotient, g", dtypes="floats",
        vjp=("-(ct * out) / y", "-(ct * g) / y", "-(ct * quotient) / y"),
    ),
    Elementwise(  # g where x > y, half of it where they tie; the selection where x >= y, its mask
        "larger_vjp", Kernel(kernels.larger_vjp, flops=5, arrays=1, masks=1), of="x, y, g",
        dtypes="compared", vjp=("None", "None", "larger_vjp(x, y, ct)"),
    ),
    Elementwise(  # g y / (x^2 + y^2), whose derivative in x is arctan2_slope
        "arctan2_vjp", Kernel(kernels.arctan2_vjp, flops=4, arrays=1), of="x, y, g",
        dtypes="floats",
        vjp=(
            "ct * g * arctan2_slope(x, y)",
            "ct * g * (x * x - y * y) / squared(x * x + y * y)",
            "arctan2_vjp(x, y, ct)",
        ),
    ),
    Elementwise(
        "hypot_vjp", "x / distance * g", of="x, distance, g", dtypes="floats",
        vjp=("ct * g / distance", "-(ct * out) / distance", "hypot_vjp(x, distance, ct)"),
    ),
)  # fmt: skip

# The arithmetic of optimisers, which has no derivatives; its primitives stand in
# ``parameter_update``.
UPDATES = (
    Elementwise("descend", "x - direction * rate", of="x, direction, rate"),
    Elementwise("moving_sum", "old * decay + new", of="old, new", attrs="decay"),
    Elementwise("moving_average", "(new - old) * (1 - decay) + old", of="old, new", attrs="decay"),
    Elementwise(
        "moving_square", "(new * new - old) * (1 - decay) + old", of="old, new", attrs="decay"
    ),
)  # fmt: skip

# By the module whose functions they are.
TABLE: dict[str, tuple[Elementwise, ...]] = {
    "elementwise": ARITHMETIC,
    "elementwise_functions": FUNCTIONS,
    "activation": ACTIVATIONS,
    "comparison": COMPARISONS,
    "logic": LOGIC,
    "rounding": ROUNDING,
}
ROWS = {row.name: row for rows in TABLE.values() for row in rows if not row.composed}
