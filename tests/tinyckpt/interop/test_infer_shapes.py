"""Memoised shape inference: what FakeTensorMode infers, in the storages in which it infers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor

from tinyckpt.interop.torch import infer_shapes
from tinyckpt.interop.torch.capture import DispatchMode, FakeMode, FakeTensor, address_of
from tinyckpt.interop.torch.infer_shapes import infer
from tinyckpt.interop.torch.pytrees import tree_leaves, tree_map

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def empty_table() -> Iterator[None]:
    infer_shapes.KNOWN.clear()
    yield
    infer_shapes.KNOWN.clear()


def made(mode: Any, dtype: torch.dtype = torch.float32, begin: int | None = None) -> list[Tensor]:
    """Return two matrices and a column of the first one; each begins at a place in its storage."""
    with mode:
        x, y = torch.empty(4, 6, dtype=dtype), torch.empty(4, 6, dtype=dtype)
        if begin is not None:
            x, y = (torch.empty(64, dtype=dtype)[begin : begin + 24].view(4, 6) for _ in "xy")
        return [x, y, x[:, 1]]


def described(result: Any, operands: list[Tensor]) -> list[Any]:
    """Return layouts of results, and the operands that they are, or share a storage with."""
    return [
        x if not isinstance(x, Tensor) else (
            type(x), x.dtype, x.device, tuple(x.shape), x.stride(), x.storage_offset(),
            x.untyped_storage().nbytes(), x.requires_grad,
            [x is other for other in operands],
            [address_of(x) == address_of(other) for other in operands],
        )
        for x in tree_leaves(result)
    ]  # fmt: skip


# By name, a call on the operands of ``made``, and whether the table has its results afterwards.
CALLS: dict[str, tuple[Callable[[list[Tensor]], tuple[Any, ...]], bool]] = {
    "sum": (lambda x: (aten.add.Tensor, x[0], x[1]), True),
    "of one operand twice": (lambda x: (aten.mul.Tensor, x[0], x[0]), True),
    "with an integer": (lambda x: (aten.mul.Tensor, x[0], 2), True),
    "view": (lambda x: (aten.t.default, x[0]), True),
    "view of a view": (lambda x: (aten.slice.Tensor, x[2], 0, 1, 3), True),
    "unsafe view": (lambda x: (aten._unsafe_view.default, x[0], [6, 4]), True),
    "several views": (lambda x: (aten.split.Tensor, x[0], 3, 1), True),
    "several results": (lambda x: (aten.native_layer_norm.default, x[0], [6], None, None, 1e-5),
                        True),
    "list of operands": (lambda x: (aten.cat.default, [x[0], x[1]], 1), True),
    "written in place": (lambda x: (aten.add_.Tensor, x[0], x[1]), True),
    "written, one operand twice": (lambda x: (aten.add_.Tensor, x[0], x[0]), False),
    "written, and its view": (lambda x: (aten.add_.Tensor, x[2], x[0][:, 0]), False),
    "layout written": (lambda x: (aten.t_.default, x[0]), False),
    "resized": (lambda x: (aten.resize_.default, x[0], [2, 2]), False),
    "transposed copy": (lambda x: (aten.clone.default, x[0].t()), True),
    "factory": (lambda x: (aten.ones_like.default, x[0]), True),
    "convolution": (lambda x: (aten.convolution.default, x[0][None, :3, :, None], x[1][None, :3, :2,
                               None], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), False),
    "size": (lambda x: (aten.sym_size.int, x[0], 0), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_second_call_returns_what_fake_tensor_mode_does(name: str) -> None:
    call, is_known = CALLS[name]
    mode = FakeMode()
    found = []
    plain: Callable[..., Any] = lambda func, *args: func(*args)  # noqa: E731
    for evaluate in (plain, *[lambda func, *args: infer(mode, func, args, {})] * 3):
        with mode, torch.no_grad():
            operands = made(mode)
            func, *args = call(operands)
            result = evaluate(func, *args)
            found.append(described(result, operands))
            found[-1].append([described(x, operands) for x in operands])  # as they are afterwards
    assert found[0] == found[1] == found[2] == found[3]
    assert any(entry is not None for entry in infer_shapes.KNOWN.values()) == is_known


IMAGES = torch.randn(2, 6, 5, 4)
LAST = IMAGES.to(memory_format=torch.channels_last)
CHANNELS = [torch.rand(6) for _ in range(4)]
ROWS = torch.randn(3, 7, 6)
# FakeTensorMode decomposes most of these, and is wrong about the strides of the first.
KERNELS: dict[str, tuple[Any, ...]] = {
    "view of heads of one token": (
        aten.view.default, torch.empty_strided((2, 4, 1, 64), (256, 64, 256, 1)), [8, 1, 64]),
    "batch norm": (aten.native_batch_norm.default, IMAGES, *CHANNELS, True, 0.1, 1e-5),
    "batch norm, channels last": (aten.native_batch_norm.default, LAST, *CHANNELS, True, 0.1, 1e-5),
    "its derivative": (aten.native_batch_norm_backward.default, IMAGES, IMAGES.clone(),
                       CHANNELS[0], *CHANNELS[2:], *CHANNELS[:2], True, 1e-5, [True] * 3),
    "layer norm": (aten.native_layer_norm.default, ROWS, [6], *CHANNELS[:2], 1e-5),
    "group norm": (aten.native_group_norm.default, IMAGES, *CHANNELS[:2], 2, 6, 20, 3, 1e-5),
    "gelu's derivative, transposed": (aten.gelu_backward.default, ROWS.mT, ROWS.mT),
    "relu's derivative, mixed": (aten.threshold_backward.default, LAST, IMAGES, 0),
    "sum of mixed": (aten.add.Tensor, LAST, IMAGES),
    "sum with a row": (aten.add.Tensor, ROWS.mT, torch.ones(6, 1)),
    "softmax, transposed": (aten._softmax.default, ROWS.mT, 1, False),
    "product": (aten.bmm.default, ROWS, ROWS.mT),
    "mean": (aten.mean.dim, ROWS.mT, [1], True),
    "largest": (aten.topk.default, ROWS, 2),
    "pooling, channels last": (aten.max_pool2d_with_indices.default, LAST, [2, 2]),
    "upsampling, channels last": (aten.upsample_nearest2d.default, LAST, [10, 8]),
    "concatenation, channels last": (aten.cat.default, [LAST, LAST], 1),
    "choice": (aten.where.self, ROWS.mT > 0, ROWS.mT, torch.zeros(())),
    "another dtype": (aten.gt.Scalar, ROWS.mT, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_new_call_returns_what_the_kernel_does(name: str) -> None:
    func, *args = KERNELS[name]
    mode = FakeMode()
    with torch.no_grad():
        expected = tree_leaves(func(*args))
        given = tree_map(lambda x: mode.from_tensor(x) if isinstance(x, Tensor) else x, args)
        with mode:
            results = tree_leaves(infer(mode, func, tuple(given), {}))
    assert [(x.dtype, x.shape, x.stride()) for x in results] == [
        (x.dtype, x.shape, x.stride()) for x in expected
    ]


def test_call_that_no_kernel_takes_raises_what_fake_tensor_mode_does() -> None:
    mode = FakeMode()
    texts = []
    plain: Callable[..., Any] = lambda func, *args: func(*args)  # noqa: E731
    for evaluate in (plain, lambda func, *args: infer(mode, func, args, {})):
        with mode, torch.no_grad():
            x = made(mode)[0]
            with pytest.raises(RuntimeError) as error:
                evaluate(aten.mm.default, x, x)
            texts.append(str(error.value))
    assert texts[0] == texts[1]


VIEWS: dict[str, tuple[Any, ...]] = {
    "alias": (aten.alias.default,), "another type": (aten.view.dtype, torch.int16),
    "detach": (aten.detach.default,), "expand": (aten.expand.default, [2, 4, 6]),
    "permute": (aten.permute.default, [1, 0]), "place in the storage": (
        aten.as_strided.default, [2, 2], [1, 1], 3),
    "place left out": (aten.as_strided.default, [2, 2], [1, 1]),
    "select": (aten.select.int, 1, 2), "split": (aten.split_with_sizes.default, [1, 5], 1),
    "squeeze": (aten.squeeze.dim, 0), "transpose": (aten.transpose.int, 0, 1),
    "unbind": (aten.unbind.int, 1), "unsqueeze": (aten.unsqueeze.default, 1),
    "view": (aten.view.default, [6, 4]),
}  # fmt: skip
PLACED = {"another type", "place in the storage", "place left out", "written in place"}


@pytest.mark.parametrize("name", [*CALLS, *VIEWS])
def test_results_begin_where_their_operands_do(name: str) -> None:
    call, is_known = CALLS.get(name) or (lambda x: (VIEWS[name][0], x[0], *VIEWS[name][1:]), True)
    mode = FakeMode()
    counts = []
    for begin in (0, 6, 8, 6):
        found = []
        plain: Callable[..., Any] = lambda func, *args: func(*args)  # noqa: E731
        for evaluate in (plain, lambda func, *args: infer(mode, func, args, {})):
            with mode, torch.no_grad():
                operands = made(mode, begin=begin)
                func, *args = call(operands)
                found.append(described(evaluate(func, *args), operands))
        assert found[0] == found[1], begin
        counts.append(len(infer_shapes.KNOWN))
    if is_known:
        assert len(set(counts)) == (3 if name in PLACED else 1)


def test_calls_with_other_operands_have_other_entries() -> None:
    mode = FakeMode()
    with mode, torch.no_grad():
        x, y, column = made(mode)
        half = made(mode, torch.bfloat16)[0]
        results = [
            infer(mode, aten.mul.Tensor, args, {})
            for args in ((x, 2), (x, 2.0), (x, True), (half, 2), (half, x), (x.t(), 2), (column, 2))
        ]
        integers = torch.ones(3, dtype=torch.long)
        assert infer(mode, aten.mul.Tensor, (integers, 1), {}).dtype == torch.long
        assert infer(mode, aten.mul.Tensor, (integers, 1.0), {}).dtype == torch.float32
        infer(mode, aten.add_.Tensor, (x, y), {})
        assert infer(mode, aten.add_.Tensor, (y, x), {}) is y
    assert [each.dtype for each in results[3:5]] == [torch.bfloat16, torch.float32]
    assert len(infer_shapes.KNOWN) == 10


def test_value_conjugate_bit_and_other_modes_are_left_to_fake_tensor_mode() -> None:
    mode = FakeMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad():
        waves = torch.ones(3, dtype=torch.complex64)
        for x in (torch.tensor(2.0), waves.conj(), waves.conj().imag):
            infer(mode, aten.mul.Tensor, (x, 2), {})
            assert infer_shapes.KNOWN == {}
        assert infer(mode, aten.mul.Tensor, (waves.conj(), 2), {}).dtype == torch.complex64
    real = torch.ones(3)
    with mode, torch.no_grad():
        assert isinstance(infer(mode, aten.mul.Tensor, (real, 2), {}), FakeTensor)
    assert infer_shapes.KNOWN == {}


class Inferring(DispatchMode):  # type: ignore[misc]
    """Evaluates all by ``infer``."""

    def __init__(self, mode: Any) -> None:
        super().__init__()
        self.mode = mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return infer(self.mode, func, args, kwargs or {})


class Watching(DispatchMode):  # type: ignore[misc]
    """Counts what it sees."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_mode_between_sees_every_call() -> None:
    mode, watching = FakeMode(), Watching()
    with mode, torch.no_grad():
        x = made(mode)[0]
        with watching, Inferring(mode):
            for _ in range(3):
                torch.mul(x, 2)
    assert watching.count == 3


def test_gradients_have_the_layouts_of_fake_tensor_mode() -> None:
    layouts = []
    for around in (lambda mode: nullcontext(), Inferring, Inferring):
        mode = FakeMode()
        with mode, around(mode):
            layers = torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)
            model = torch.nn.Sequential(*layers)
            model(torch.ones(3, 4)).square().mean().backward()
            layouts.append([(p.grad.shape, p.grad.stride()) for p in model.parameters()])
    assert len(layouts[0]) == 4
    assert layouts[0] == layouts[1] == layouts[2]
    assert sum(entry is not None for entry in infer_shapes.KNOWN.values()) > 10


def test_settings_and_needs_of_gradients_have_entries_of_their_own() -> None:
    mode = FakeMode()
    with mode, torch.no_grad():
        x, _, _ = made(mode)
        call = aten.full.default, ([2], 1.5), {}
        assert infer(mode, *call).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert infer(mode, *call).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        infer(mode, aten.mul.Tensor, (x, 2), {})
        count = len(infer_shapes.KNOWN)
        infer(mode, aten.mul.Tensor, (x.detach().requires_grad_(), 2), {})
        with torch.enable_grad():
            infer(mode, aten.mul.Tensor, (x, 2), {})
        assert len(infer_shapes.KNOWN) == count + 2


def test_view_of_a_freed_storage_does_not_enlarge_it() -> None:
    mode = FakeMode()
    with mode, torch.no_grad():
        x, y, _ = made(mode)
        for each in (x, x):
            infer(mode, aten.t.default, (each,), {})
        y.untyped_storage().resize_(0)
        infer(mode, aten.t.default, (y,), {})
        plain = made(mode)[1]
        plain.untyped_storage().resize_(0)
        aten.t.default(plain)
        assert y.untyped_storage().nbytes() == plain.untyped_storage().nbytes()


def test_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_shapes, "MOST_KNOWN", 5)
    mode = FakeMode()
    with mode, torch.no_grad():
        x = made(mode)[0]
        for factor in range(12):
            assert infer(mode, aten.mul.Tensor, (x, factor), {}).shape == x.shape
            assert len(infer_shapes.KNOWN) <= 5


@pytest.mark.parametrize(
    "tree",
    [3, None, (1, [2, {"a": 3, "b": (None, "text")}]), {"size": torch.Size([2])}, [],
     torch.max(torch.ones(2, 2), 0), {1, 2}, slice(1, 2)],
)  # fmt: skip
def test_trees_are_walked_as_by_pytorch(tree: Any) -> None:
    from torch.utils import _pytree

    assert list(map(repr, tree_leaves(tree))) == list(map(repr, _pytree.tree_leaves(tree)))
    one, other = (walk(repr, tree) for walk in (tree_map, _pytree.tree_map))
    assert type(one) is type(other)
    assert one == other
