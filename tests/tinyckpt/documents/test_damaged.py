"""Damaged or forged parameter files: the saved tree, or one FormatError."""

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require

TREE = {"w": [np.float32(1.5), (np.ones((1, 2)),)], "é": {"n": None}, "h": np.array([1, -2], "f2")}
SMALL = {"w": np.array([1.0, -2.0], np.float32), "empty": {}}
Members = list[tuple[str, bytes]]


def bits(tree: Any) -> Any:
    """Return everything that is to be equal of two trees."""
    if isinstance(tree, dict):
        return {key: bits(value) for key, value in tree.items()}, list(tree)
    if isinstance(tree, list | tuple):
        return type(tree), [bits(value) for value in tree]
    return None if tree is None else (tree.dtype.str, tree.shape, tree.tobytes())


def members(path: Path) -> Members:
    """Return the members of an archive."""
    with zipfile.ZipFile(path) as archive:
        return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]


def write(path: Path, content: Members) -> None:
    """Write an archive as NumPy does."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content:
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)


def entry(array: Any) -> bytes:
    """Return a file of NumPy's."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape: Any, dtype: str = "<f8") -> bytes:
    """Return a file of NumPy's without data, with whatever shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
    return np.lib.format.magic(1, 0) + struct.pack("<H", 118) + text.encode() + b"\n"


def without_checksum(path: Path) -> None:
    """Take out of an archive what earlier versions did not write."""
    write(path, [member for member in members(path) if member[0] != "__tree__/checksum.npy"])


def saved(path: Path, kind: str, tree: Any) -> Path:
    """Write a file of one of the kinds that there are; return where it is."""
    if kind == "another's":
        np.savez(path / "a.npz", a=np.ones(2), é=np.arange(3))
        return path / "a.npz"
    if kind == "safetensors":
        require("safetensors")
    found = path / ("a.safetensors" if kind == "safetensors" else "a.npz")
    tc.save_params(tree, found)
    if kind == "of an earlier version":
        without_checksum(found)
    return found


def loaded(path: Path) -> Any:
    """Return the bits of what is loaded, or None if it is refused."""
    try:
        return bits(tc.load_params(path))
    except tc.FormatError:
        return None


def flipped(path: Path, stride: int = 1) -> Iterator[str]:
    """Flip each bit in turn; yield which it is while it is flipped."""
    content = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(content):
            for bit in range(place % stride, 8, stride):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
                yield f"byte {place}, bit {bit}"
            os.pwrite(file.fileno(), bytes([byte]), place)


KINDS = ["npz", "of an earlier version", "another's", "safetensors"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bit_gives_same_tree_or_format_error(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind, SMALL)
    whole = loaded(path)
    assert whole is not None
    for where in flipped(path, 1 if kind == "safetensors" else 2):
        assert loaded(path) in (None, whole), where


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", [TREE, np.arange(3), [None], (np.ones((0, 2)), {"a": [()]})])
def test_any_flipped_bit_of_random_tree_is_detected_or_harmless(
    tmp_path: Path, kind: str, tree: Any
) -> None:
    path = saved(tmp_path, kind, tree)
    whole = loaded(path)
    assert whole is not None
    for where in flipped(path):
        assert loaded(path) in (None, whole), where


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_or_extended_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind, SMALL)
    content = path.read_bytes()
    for size in [*range(0, len(content) - 64, 23), *range(len(content) - 64, len(content))]:
        path.write_bytes(content[:size])
        assert loaded(path) is None, size
    for more in (b"\0", b"PK\5\6", content, b"x" * 70000):
        path.write_bytes(content + more)
        assert loaded(path) is None, more[:9]
        path.write_bytes(more + content)
        assert loaded(path) is None or len(more) < 30, more[:9]


def renamed(content: Members) -> Members:
    """Give two arrays each other's name."""
    other = {"a/0.npy": "a/1.npy", "a/1.npy": "a/0.npy"}
    return [(other.get(name, name), data) for name, data in content]


@pytest.mark.parametrize(
    ("change", "checked"),
    [
        (renamed, "its checksum does not match its arrays"),
        (lambda c: [*c, c[0]], "a duplicate name"),
        (lambda c: [*c, ("a/0", c[0][1])], "a duplicate name, or one without .npy"),
        (lambda c: c[1:], "its checksum does not match its arrays"),
        (lambda c: [*c, ("b.npy", c[0][1])], "its checksum does not match its arrays"),
        (
            lambda c: [(n, d) for n, d in c if n != "__tree__.npy"],
            "its tree structure is missing",
        ),
        (lambda c: [("a/0.npy", entry(np.ones(2, np.int64))), *c[1:]], "its checksum does not"),
    ],
)
def test_exchanged_arrays_are_refused(
    tmp_path: Path, change: Callable[[Members], Members], checked: str
) -> None:
    path = tmp_path / "a.npz"
    tc.save_params({"a": [np.ones(2), np.zeros(2)]}, path)
    with (
        pytest.warns(UserWarning, match="Dupl") if checked == "a duplicate name" else nullcontext()
    ):
        write(path, change(members(path)))
    with pytest.raises(tc.FormatError, match=checked):
        tc.load_params(path)


@pytest.mark.long
def test_archives_of_other_writers_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    tc.save_params(TREE, path)
    content, whole = members(path), loaded(path)
    write(path, content[::-1])  # in whatever order
    assert loaded(path) == whole
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"of last night"
    assert loaded(path) == whole

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    pipe = Pipe()  # sizes stand after each member
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in content:
            archive.writestr(name, data)
    path.write_bytes(pipe.getvalue())
    assert loaded(path) == whole

    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)  # from there on, it is a zip64
    write(path, content)
    assert b"PK\6\6" in path.read_bytes()
    assert loaded(path) == whole
    for where in flipped(path, 8):
        assert loaded(path) in (None, whole), where


@pytest.mark.parametrize(
    ("nesting", "message"),
    [
        ("5", "the tree is neither an array nor a dict, a list or a tuple: 5"),
        ('"w"', "the tree is neither"),
        ("{}", "the tree is neither"),
        ('{"dict": [["w", "float64"]]}', "the tree is neither"),
        ('{"dict": {"w": 5}}', "w is neither"),
        ('{"list": {"w": ["w", "float64"]}}', "the tree is neither"),
        ('{"set": [["w", "float64"]]}', "the tree is neither"),
        ('{"dict": {"w": ["w", "float64"]}, "list": []}', "the tree is neither"),
        ('{"dict": {"w": ["w"]}}', "w is neither"),
        ('{"dict": {"w": [["w"], "float64"]}}', "w is neither"),
        ('{"dict": {"w": ["v", "float64"]}}', "w names the array 'v', which is elsewhere"),
        ('{"dict": {"v": ["w", "float64"]}}', "v names the array 'w', which is elsewhere"),
        ('{"dict": {"v": ["v", "float64"]}}', "v names the array 'v', which is elsewhere"),
        ('{"dict": {"w": ["w", "bfloat16"]}}', "w: expected bfloat16, got float64"),
        ('{"dict": {"w": ["w", "float32"]}}', "w: expected float32, got float64"),
        ('{"dict": {}}', "its tree structure omits w"),
        ("null", "its tree structure omits w"),
        ("[" * 100000, "damaged"),
        ('{"list": [' * 5000 + "null" + "]}" * 5000, "damaged"),
        ("{", "damaged"),
    ],
)
def test_forged_tree_structure_is_refused(tmp_path: Path, nesting: str, message: str) -> None:
    path = tmp_path / "a.npz"
    tree = entry(np.frombuffer(nesting.encode(), np.uint8))
    write(path, [("w.npy", entry(np.ones(2))), ("__tree__.npy", tree)])
    with pytest.raises(tc.FormatError, match=message):
        tc.load_params(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header((0, 10**23)), r"no array has the shape \(0, 1000"),
        (header((0, 2**62, 2**62)), "no array has the shape"),
        (header((-1, -2)) + b"\0" * 16, "no array has the shape"),
        (header((True,)), "wrong size"),
        (header("(2.0,)") + b"\0" * 16, "describes no array"),
        (header((2,), "|O") + b"\0" * 16, "objects; expected numbers"),
        (header("(" * 90), "describes no array"),
        (header((2,), "<f8") + b"\0" * 15, "wrong size"),
        (np.lib.format.magic(9, 9) + b"\0" * 64, "describes no array"),
        (b"", "describes no array"),
        (b"hello", "describes no array"),
    ],
)
def test_forged_array_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.npz"
    write(path, [("w.npy", content)])
    with pytest.raises(tc.FormatError, match=rf"w\.npy.*{message}"):
        tc.load_params(path)


def test_tree_structure_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, w=np.ones(2), __tree__=np.ones(2))
    with pytest.raises(tc.FormatError, match="__tree__ is not text, but an array of float64"):
        tc.load_params(path)


def test_unsupported_dtypes_are_not_saved(tmp_path: Path) -> None:
    kinds = [np.zeros(1, [("a", "O")]), np.array(["a"], np.dtypes.StringDType())]
    require("ml_dtypes")
    kinds.append(np.ones(2, tc.Spec((), "bfloat16").dtype).astype("float8_e4m3fn"))
    for array in kinds:
        with pytest.raises(tc.FormatError, match=r"w: files have no .*; legal are NumPy's own"):
            tc.save_params({"w": array}, tmp_path / "a.npz")
    require("safetensors")
    with pytest.raises(tc.FormatError, match=r"cannot write .*Unknown dtype"):
        tc.save_params({"w": np.array(["a"])}, tmp_path / "a.safetensors")


def test_safetensors_metadata_is_validated(tmp_path: Path) -> None:
    """The metadata: the tree structure and the checksum."""
    require("safetensors")
    from safetensors.numpy import save_file

    path, nesting = tmp_path / "a.safetensors", json.dumps({"dict": {"w": ["w", "float64"]}})
    arrays = {"w": np.ones(2)}
    save_file(arrays, path, metadata={"format": "np"})  # another's
    assert list(tc.load_params(path)) == ["w"]
    save_file(arrays, path, metadata={"__tree__": nesting})  # of an earlier version
    assert bits(tc.load_params(path)) == bits(arrays)
    for texts, message in [
        ({"__trae__": nesting}, "under another name"),
        ({"__tree__": nesting, "__tree__/checksul": "0"}, "damaged: unknown metadata"),
        ({"__tree__": nesting, "__tree__/checksum": "0"}, "its checksum does not match"),
        ({"__tree__/checksum": "0"}, "its tree structure is missing"),
    ]:
        save_file(arrays, path, metadata=texts)
        with pytest.raises(tc.FormatError, match=message):
            tc.load_params(path)
    tc.save_params({"w": np.array([1.0], ">f8")}, path)  # in the one order of bytes that it has
    assert tc.load_params(path)["w"].tolist() == [1.0]
