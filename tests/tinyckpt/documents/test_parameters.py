"""Parameter files: bitwise round trip; damage is one clear error."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples, require


class Pair(NamedTuple):
    """A tuple whose class no file knows."""

    first: Any
    second: Any


TREE = {
    "parameters": {"w": np.arange(6.0).reshape(2, 3), "layers": [np.float32(1.5), (np.ones(0),)]},
    "file": np.array(7),  # a name that numpy.savez would take for an argument
    "file.npy": np.array(8),
    "__tree__.npy": np.array(9),
    "none": None,
    "mask": np.array([[True], [False]]),
    "half": np.array([1.0, -2.0], np.float16),
}


def same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        left, right = list(left.values()), list(right.values())
    if isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            same(np.asarray(one) if isinstance(one, np.generic) else one, other)
    elif left is not None:
        np.testing.assert_array_equal(left, right, strict=True)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_saved_tree_round_trips(tmp_path: Path, kind: str) -> None:
    if kind == "safetensors":
        require("safetensors")
    path = tmp_path / f"state.{kind}"
    tc.save_params(TREE, path)
    same(TREE, tc.load_params(path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_files_are_exchanged_with_other_programs(tmp_path: Path) -> None:
    tc.save_params(TREE, tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz") as file:
        assert file["parameters/w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    assert tc.load_params(tmp_path / "other.npz")["a"].tolist() == [1, 1]


@settings(max_examples=examples(100))
@given(st.data())
def test_damaged_file_is_format_error_or_same_tree(tmp_path_factory: Any, data: Any) -> None:
    path = tmp_path_factory.mktemp("damaged") / "state.npz"
    tc.save_params(TREE, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        places = st.integers(0, len(content) - 1)  # a copy from near the end shortens the file
        begin, length = data.draw(places), data.draw(st.integers(0, 60))
        if data.draw(st.booleans()):
            there = data.draw(places)  # from elsewhere: another name, header or number
            content[begin : begin + length] = content[there : there + length]
        else:
            content[begin] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        same(TREE, tc.load_params(path))
    except tc.FormatError:
        return


def test_overstated_array_size_is_refused_before_allocation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "huge.npz"
    header = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little")
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header + text.ljust(117).encode() + b"\n")
    with pytest.raises(tc.FormatError, match=r"a\.npy is damaged: wrong size"):
        tc.load_params(path)
    np.savez_compressed(path, a=np.zeros(10**6))
    with pytest.raises(tc.FormatError, match=r"a\.npy is compressed; store it as it is"):
        tc.load_params(path)


@pytest.mark.parametrize(
    ("tree", "name", "message"),
    [
        ({"w": [1.0, object()]}, "a.npz", "w/0: expected an array, got a float"),
        ({"a/b": np.ones(1)}, "a.npz", "the key 'a/b'; keys are text without a slash"),
        ({3: np.ones(1)}, "a.npz", "the key 3; keys are text without a slash, such as '3'"),
        ([Pair(np.ones(1), 2)], "a.npz", r"0: expected an array, got a Pair; .* its _asdict\(\)"),
        ([{1, 2}], "a.npz", "0: expected an array, got a set; legal are arrays of numbers, and"),
        ({"a\0b": np.ones(1)}, "a.npz", r"the key 'a\\x00b'; keys are text"),
        ({"\ud800": np.ones(1)}, "a.npz", r"the key '\\ud800'; keys are text"),
        ({"": np.ones(1)}, "a.npz", "the key ''; keys are text without a slash, not empty, and"),
        ({"__tree__": np.ones(1)}, "a.npz", "none of __tree__, __metadata__"),
        ({"__metadata__": np.ones(1)}, "a.safetensors", "none of __tree__, __metadata__"),
        ({"a": {"b" * 70000: np.ones(1)}}, "a.npz", "a/bb.*…: all keys together are longer than"),
        ({"a": np.ones(1)}, "a.pt", r"the name must end in \.npz or \.safetensors"),
        ({"a": np.array([None])}, "a.npz", "a: expected an array"),
        (np.ones(2), "no/such/folder/a.npz", "cannot write"),
    ],
)
def test_unsupported_leaves_are_refused(tmp_path: Path, tree: Any, name: str, message: str) -> None:
    with pytest.raises(tc.FormatError, match=message):
        tc.save_params(tree, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("depth", [191, 900, 10_000])
@pytest.mark.parametrize(
    "hold", [lambda tree: {"k": tree}, lambda tree: [tree], lambda tree: (tree,)]
)
def test_cyclic_or_deep_tree_is_refused(tmp_path: Path, hold: Any, depth: int) -> None:
    tree = np.ones(2)
    for _ in range(depth - 1):
        tree = hold(tree)
        if depth == 191 and _ == 188:
            tc.save_params(tree, tmp_path / "deep.npz")
            same(tree, tc.load_params(tmp_path / "deep.npz"))
    with pytest.raises(tc.FormatError, match="the tree: nested more than 190 deep, at"):
        tc.save_params(hold(tree), tmp_path / "a.npz")
    loop: dict[str, Any] = {"w": np.ones(2)}
    loop["l"] = hold(loop)
    with pytest.raises(tc.FormatError, match="the tree: contains itself: "):
        tc.save_params(loop, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


def test_missing_or_foreign_file_is_format_error(tmp_path: Path) -> None:
    with pytest.raises(tc.FormatError, match=r"cannot read .*none\.npz: No such file"):
        tc.load_params(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(tc.FormatError, match="is not a file of parameters, or is damaged"):
        tc.load_params(tmp_path / "text.npz")
    require("safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(tc.FormatError, match="is not a safetensors file, or is damaged"):
        tc.load_params(tmp_path / "text.safetensors")


def test_failed_write_keeps_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    tc.save_params({"w": np.ones(2)}, path)
    with pytest.raises(tc.FormatError):
        tc.save_params({"w": np.zeros(2), "x": object()}, path)
    assert tc.load_params(path)["w"].tolist() == [1, 1]


@pytest.mark.parametrize("without", [False, True])
def test_bfloat16_round_trips_to_another_process(tmp_path: Path, without: bool) -> None:
    require("ml_dtypes")
    dtype = tc.Spec((), "bfloat16").dtype
    path = tmp_path / "state.npz"
    tc.save_params({"w": np.array([1.5, -2], dtype)}, path)
    script = (
        f"import sys; sys.modules.update({{'ml_dtypes': None}} if {without} else {{}}); "
        f"import tinyckpt as tc; print(tc.load_params({str(path)!r})['w'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    wanted = "bfloat16 needs ml_dtypes: pip install" if without else "[1.5 -2]"
    assert wanted in (ran.stderr if without else ran.stdout), ran.stderr


def test_records_of_earlier_versions_load(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for records in (np.rec.array([(1, 2.5), (3, 4.5)]), np.rec.array((1, 2.5))):
        tc.save_params({"a": records}, path)
        found = tc.load_params(path)["a"]
        assert found.tolist() == records.tolist()
        assert found.dtype == np.dtype(records.dtype.descr)
        nesting = b'{"dict": {"a": ["a", "record128"]}}'
        np.savez(path, a=np.asarray(records), __tree__=np.frombuffer(nesting, np.uint8))
        assert tc.load_params(path)["a"].tolist() == records.tolist()


def test_masked_array_is_refused(tmp_path: Path) -> None:
    masked: Any = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(tc.FormatError, match=r"^b/0: files have no masks; legal are its .data"):
        tc.save_params({"b": [masked]}, tmp_path / "a.npz")


def test_bfloat16_of_other_byte_order_loads(tmp_path: Path) -> None:
    require("ml_dtypes")
    nesting = np.frombuffer(b'{"dict": {"a": ["a", "bfloat16"]}}', np.uint8)
    np.savez(tmp_path / "a.npz", a=np.array([0x3F80, 0x4000], ">u2"), __tree__=nesting)
    assert tc.load_params(tmp_path / "a.npz")["a"].tolist() == [1.0, 2.0]
