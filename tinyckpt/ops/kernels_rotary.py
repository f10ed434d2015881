"""Kernel of rotary position embedding (RoPE).

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.base.dtypes import wide


def rotary(xp, x, *positions, base, interleaved, sign):
    # Angles are computed in float64: at position 100,000 float32 has three digits left of a turn.
    exact = wide(x.dtype)
    half = x.shape[-1] // 2
    rows = positions[0] if positions else xp.arange(x.shape[-2])
    angles = xp.multiply(rows[..., None], base ** (xp.arange(half) / -half))
    del rows
    cosine, sine = xp.empty(angles.shape, exact), xp.empty(angles.shape, exact)
    xp.cos(angles, out=cosine)
    xp.sin(angles, out=sine)
    del angles
    sine *= sign
    if interleaved:
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, half), slice(half, None)
    out = xp.empty(x.shape, exact)
    xp.multiply(x[..., first], cosine, out=out[..., first])
    spare = xp.multiply(x[..., second], sine, dtype=exact)
    out[..., first] -= spare
    xp.multiply(x[..., second], cosine, out=out[..., second])
    xp.multiply(x[..., first], sine, out=spare)
    out[..., second] += spare
    del spare
    return out.astype(x.dtype, copy=False)
