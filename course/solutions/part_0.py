"""Part 0: reverse mode on scalars, by hand and then by a loop over a tape.

The example is ``a = w * x``, ``b = a + w``, ``loss = b * b``.
"""

# An entry of a tape: ("add" or "multiply", left operand, right operand). Operands are positions in
# the list of values: the inputs come first, then the result of each entry.
Entry = tuple[str, int, int]


def forward(w: float, x: float) -> tuple[float, float, float]:
    """Return a, b and the loss."""
    ### BEGIN SOLUTION
    # Task 0.1: compute a, b and the loss.
    a = w * x
    b = a + w
    return a, b, b * b
    ### END SOLUTION


def backward(w: float, x: float, a: float, b: float) -> tuple[float, float]:
    """Return dL/dw and dL/dx."""
    ### BEGIN SOLUTION
    # Task 0.2: apply the chain rule from the loss back to w and x.
    db = 2 * b
    da = db
    dw = db + da * x  # w is read twice: contributions add up
    return dw, da * w
    ### END SOLUTION


def evaluate(tape: list[Entry], inputs: list[float]) -> list[float]:
    """Return all values: the inputs, then the result of each entry."""
    ### BEGIN SOLUTION
    # Task 0.3: append the result of each entry to the values.
    values = list(inputs)
    for kind, left, right in tape:
        x, y = values[left], values[right]
        values.append(x + y if kind == "add" else x * y)
    return values
    ### END SOLUTION


def reverse(tape: list[Entry], values: list[float]) -> list[float]:
    """Return the cotangent of each value: how fast the last value changes with it."""
    ### BEGIN SOLUTION
    # Task 0.4: go through the tape from its end, and add up contributions.
    cotangents = [0.0] * len(values)
    cotangents[-1] = 1.0
    inputs = len(values) - len(tape)
    for position in reversed(range(len(tape))):
        kind, left, right = tape[position]
        g = cotangents[inputs + position]
        cotangents[left] += g if kind == "add" else g * values[right]
        cotangents[right] += g if kind == "add" else g * values[left]
    return cotangents
    ### END SOLUTION


def residuals(tape: list[Entry]) -> set[int]:
    """Return the positions of the values that ``reverse`` reads."""
    ### BEGIN SOLUTION
    # Task 0.5: say which values reverse reads.
    return {data for kind, *operands in tape if kind == "multiply" for data in operands}
    ### END SOLUTION
