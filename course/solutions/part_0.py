"""Part 0: reverse mode on scalars, by hand and then by a loop over a tape.

The example is ``a = w * x``, ``b = a + w``, ``loss = b * b``.
"""

# An entry of a tape: ("add" or "multiply", left operand, right operand). Operands are positions in
# the list of values: the inputs come first, then the result of each entry.
Entry = tuple[str, int, int]


def forward(w: float, x: float) -> tuple[float, float, float]:
    """Return a, b and the loss."""
    a = w * x
    b = a + w
    return a, b, b * b


def backward(w: float, x: float, a: float, b: float) -> tuple[float, float]:
    """Return dL/dw and dL/dx."""
    db = 2 * b
    da = db
    dw = db + da * x  # w is read twice: contributions add up
    return dw, da * w


def evaluate(tape: list[Entry], inputs: list[float]) -> list[float]:
    """Return all values: the inputs, then the result of each entry."""
    values = list(inputs)
    for kind, left, right in tape:
        x, y = values[left], values[right]
        values.append(x + y if kind == "add" else x * y)
    return values


def reverse(tape: list[Entry], values: list[float]) -> list[float]:
    """Return the cotangent of each value: how fast the last value changes with it."""
    cotangents = [0.0] * len(values)
    cotangents[-1] = 1.0
    inputs = len(values) - len(tape)
    for position in reversed(range(len(tape))):
        kind, left, right = tape[position]
        g = cotangents[inputs + position]
        cotangents[left] += g if kind == "add" else g * values[right]
        cotangents[right] += g if kind == "add" else g * values[left]
    return cotangents


def residuals(tape: list[Entry]) -> set[int]:
    """Return the positions of the values that ``reverse`` reads."""
    return {data for kind, *operands in tape if kind == "multiply" for data in operands}
