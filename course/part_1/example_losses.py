"""Loss functions for the tests of parts 1 to 5."""

from part_1 import differentiate, half_squared_norm, tanh


def mlp(weights, x):
    for w in weights:
        x = tanh(x @ w)
    return half_squared_norm(x)


def gated(weights, x):
    for w in weights:
        x = x + tanh(x @ w) * x
    return half_squared_norm(x * x)


def residual(weights, x):
    for w in weights:
        x = x + tanh(x @ w)
    return half_squared_norm(x)


def chain(n):
    """Return the graph of n layers of tanh and their backward pass, without the loss."""

    def loss(parameters):
        (x,) = parameters
        for _ in range(n):
            x = tanh(x)
        return half_squared_norm(x)

    return differentiate(loss, parameters=1, value=False)
