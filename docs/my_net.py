"""A custom network, for commands such as ``tinyckpt gif docs/my_net.py:make -o mine.gif``."""

from typing import Any

import tinyckpt as tc


def make() -> tc.networks.Network:
    """Return a residual network of six blocks: its loss, and the shapes of its arguments."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = x
        for number, w in enumerate(params, start=1):
            with tc.scope(f"block{number}"):
                h = h + tc.tanh(h @ w)
        return tc.mean((h - y) ** 2)

    batch = tc.Spec((32, 16))
    return tc.networks.Network("mine", loss, ([tc.Spec((16, 16))] * 6, batch, batch))
