"""Kernels of ReGELU2 and ReSiLU2, and packing of 2-, 4- and 8-bit codes into bytes.

A code of b bits is packed little-endian: element i, in C order, has the b bits from bit
b (i mod 8/b) of byte i div 8/b.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.ops.cache_blocking import spans
from tinyckpt.ops.gelu_silu_fits import slopes_of, thresholds_of
from tinyckpt.ops.kernels_activation import gelu, gelu_tanh, silu


def pack_bits(xp, flags, bits):
    """Pack small numbers into bytes; their count must fill the last byte."""
    lanes = flags.reshape(-1, 8 // bits)
    codes = lanes[:, -1].copy()
    for lane in range(8 // bits - 2, -1, -1):
        codes <<= bits
        codes |= lanes[:, lane]
    return codes


def unpack_bits(xp, codes, bits):
    """Unpack the numbers in packed bytes, one byte each."""
    lanes = xp.empty((codes.size, 8 // bits), "uint8")
    for lane in range(8 // bits):
        xp.right_shift(codes, bits * lane, out=lanes[:, lane])
    lanes &= 2**bits - 1
    return lanes.reshape(-1)


def threshold_codes(xp, x, thresholds):
    """Count the thresholds, of three, below each element, as a 2-bit code; NaN is above none."""
    flags = xp.zeros(-(-x.size // 4) * 4, "uint8")
    counts = flags[: x.size].reshape(x.shape)
    for threshold in thresholds:
        counts += x > threshold
    return pack_bits(xp, flags, 2)


def step_vjp(xp, codes, g, slopes):
    """Multiply the cotangent by each element's slope, looked up by its code."""
    out = xp.empty(g.shape, g.dtype)
    flat, table = out.reshape(-1), xp.asarray(slopes, dtype=g.dtype)
    for start, stop in spans(flat.size, 4):
        flags = unpack_bits(xp, codes[start // 4 : -(-stop // 4)], 2)
        flat[start:stop] = table[flags[: stop - start]]
    out *= g
    return out


def regelu2(xp, x, approximate, fit):
    y = gelu_tanh(xp, x) if approximate else gelu(xp, x)
    return y, threshold_codes(xp, x, thresholds_of("gelu", fit, x.dtype))


def regelu2_vjp(xp, codes, g, fit):
    return step_vjp(xp, codes, g, slopes_of("gelu", fit))


def resilu2(xp, x, fit):
    return silu(xp, x), threshold_codes(xp, x, thresholds_of("silu", fit, x.dtype))


def resilu2_vjp(xp, codes, g, fit):
    return step_vjp(xp, codes, g, slopes_of("silu", fit))
