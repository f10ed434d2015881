"""Part 0: reverse mode on scalars, by hand and then by a loop over a tape.

The example is ``a = w * x``, ``b = a + w``, ``loss = b * b``.
"""

# An entry of a tape: ("add" or "multiply", left operand, right operand). Operands are positions in
# the list of values: the inputs come first, then the result of each entry.
Entry = tuple[str, int, int]


def forward(w: float, x: float) -> tuple[float, float, float]:
    """Return a, b and the loss."""
    raise NotImplementedError("Task 0.1: compute a, b and the loss.")


def backward(w: float, x: float, a: float, b: float) -> tuple[float, float]:
    """Return dL/dw and dL/dx."""
    raise NotImplementedError("Task 0.2: apply the chain rule from the loss back to w and x.")


def evaluate(tape: list[Entry], inputs: list[float]) -> list[float]:
    """Return all values: the inputs, then the result of each entry."""
    raise NotImplementedError("Task 0.3: append the result of each entry to the values.")


def reverse(tape: list[Entry], values: list[float]) -> list[float]:
    """Return the cotangent of each value: how fast the last value changes with it."""
    raise NotImplementedError(
        "Task 0.4: go through the tape from its end, and add up contributions."
    )


def residuals(tape: list[Entry]) -> set[int]:
    """Return the positions of the values that ``reverse`` reads."""
    raise NotImplementedError("Task 0.5: say which values reverse reads.")
