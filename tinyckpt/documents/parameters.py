"""Files of parameters and of whole training states: ``.npz``, or ``.safetensors`` for exchange.

Every leaf of the tree is an array under its path, such as ``parameters/layers/0/w``, so that other
programs can read the file; how they nest stands beside them as JSON. What is read is checked before
memory is taken for it, and nothing in a file is ever run.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinyckpt.errors import FormatError, GraphError
from tinyckpt.files import replacing, write_atomically
from tinyckpt.graph import checked_dtype
from tinyckpt.tree import Tree

NESTING = "__tree__"  # the entry that says how the arrays nest
RESERVED = (NESTING, "__metadata__")  # the other one is where safetensors has its own
MOST_NAMED = 2**16 - 1 - len(".npy")  # bytes of an array's name; a .zip has two for their number
KINDS = ".npz", ".safetensors"


def save_params(tree: Tree, path: str | os.PathLike[str]) -> None:
    """Write arrays nested in dicts, lists and tuples, such as a training state, to a file.

    The file is there as a whole or not at all: whoever reads the path, also after the process was
    killed, finds what was there before or what is written now.

    Args:
        tree: arrays of NumPy or CuPy; the keys of dicts are strings without a slash, not empty,
            and neither ``__tree__`` nor ``__metadata__``. Named tuples are refused, since a file
            cannot say of which class they were: pass ``_asdict()``.
        path: ends in ``.npz``, or ``.safetensors``, which needs the package of that name.

    Raises:
        FormatError: if the tree holds something else, or the file cannot be written.

    >>> import numpy as np, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_params({"w": np.ones(2), "layers": [np.zeros(1)]}, f"{folder}/a.npz")
    ...     tc.load_params(f"{folder}/a.npz")
    {'w': array([1., 1.]), 'layers': [array([0.])]}
    """
    arrays: dict[str, Any] = {}
    nesting = json.dumps(parted(tree, "", arrays))
    if kind_of(path) == ".npz":
        entries = {**arrays, NESTING: np.frombuffer(nesting.encode(), np.uint8)}
        # As np.savez does, which takes no array by the name of one of its own arguments.
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in entries.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return
    write_atomically(path, safetensors().save(arrays, metadata={NESTING: nesting}))


def load_params(path: str | os.PathLike[str]) -> Tree:
    """Return what ``save_params`` wrote; of another's file, its arrays by their names.

    Raises:
        FormatError: if the file cannot be read, or is damaged.
    """
    kind = kind_of(path)
    if not Path(path).is_file():
        raise FormatError(f"cannot read {path}: there is no such file")
    try:
        arrays, nesting = (numpy_file if kind == ".npz" else safetensors_file)(path)
        return arrays if nesting is None else joined(json.loads(nesting), arrays)
    except FormatError:
        raise
    except GraphError as error:
        raise FormatError(f"cannot read {path}: {error}") from error
    except (
        OSError, ValueError, LookupError, EOFError, RuntimeError, TypeError,
        zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise FormatError(f"{path} is no file of parameters, or is damaged: {error}") from error


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the end of a file's name that says what it is."""
    kind = Path(path).suffix
    if kind not in KINDS:
        raise FormatError(f"{path}: the name must end in {' or '.join(KINDS)}")
    return kind


def parted(tree: Tree, path: str, arrays: dict[str, Any]) -> Any:
    """Return how a tree nests, as JSON data, and put its arrays under their paths."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        for key in tree:
            if not is_name(key):
                raise FormatError(
                    f"{path or 'the tree'}: the key {key!r:.80}; keys are text without a slash"
                    + (f", such as {str(key)!r}" if isinstance(key, int) else "")
                    + f", not empty, and none of {', '.join(RESERVED)}"
                )
        return {"dict": {key: parted(tree[key], f"{path}{key}/", arrays) for key in tree}}
    if type(tree) in (list, tuple):
        items = [parted(item, f"{path}{number}/", arrays) for number, item in enumerate(tree)]
        return {type(tree).__name__: items}
    leaf = tree.get() if hasattr(tree, "get") and hasattr(tree, "dtype") else tree  # CuPy's
    if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind == "O":
        raise FormatError(
            f"{path.removesuffix('/') or 'the tree'}: expected an array, got a "
            f"{type(tree).__name__}; legal are arrays of numbers, and dicts, lists and tuples of "
            "them" + (", such as its _asdict()" if hasattr(tree, "_asdict") else "")
        )
    name = path.removesuffix("/") or "array"
    if len(name.encode()) > MOST_NAMED:
        raise FormatError(f"{name:.80}…: all keys together are longer than {MOST_NAMED} bytes")
    array = np.asarray(leaf)
    # NumPy's files know no 16-bit brain floats: their bits are kept, and their name.
    stored = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    arrays[name] = np.asarray(stored, order="C")
    return [name, array.dtype.name]


def is_name(key: Any) -> bool:
    """Whether a key can be part of an array's name in a file of either kind."""
    if not isinstance(key, str) or key in ("", *RESERVED):
        return False
    return not set(key) & {"/", "\0"} and key.encode(errors="replace").decode() == key


def joined(nesting: Any, arrays: dict[str, Any]) -> Tree:
    """Return the tree of arrays that nest as JSON data says."""
    if nesting is None:
        return None
    if isinstance(nesting, list):
        name, dtype = nesting
        array = arrays[name]
        return array.view(checked_dtype(dtype)) if dtype == "bfloat16" else array
    ((kind, content),) = nesting.items()
    if kind == "dict":
        return {key: joined(value, arrays) for key, value in content.items()}
    return {"list": list, "tuple": tuple}[kind](joined(value, arrays) for value in content)


def numpy_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """Return the arrays of a ``.npz`` and how they nest, if it says so."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        check_sizes(archive, Path(path).stat().st_size)
        # Not by np.load, to which "w" and "w.npy" are the same.
        for entry in archive.infolist():
            with archive.open(entry) as member:
                name = entry.filename.removesuffix(".npy")
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    nesting = arrays.pop(NESTING, None)
    return arrays, None if nesting is None else nesting.tobytes().decode()


def check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Raise a FormatError if arrays claim to be larger than the file that they are in."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0}
    for entry in archive.infolist():
        where = f"{archive.filename}: {entry.filename}"
        if entry.compress_type != zipfile.ZIP_STORED:
            raise FormatError(f"{where} is compressed; store it as it is")
        with archive.open(entry) as member:
            version = np.lib.format.read_magic(member)
            read = readers.get(version, np.lib.format.read_array_header_2_0)
            shape, _, dtype = read(member)
            claimed = math.prod(shape) * dtype.itemsize + member.tell()
        if claimed != entry.file_size or entry.file_size > size:
            raise FormatError(f"{where} is damaged: wrong size")


def safetensors_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """Return the arrays of a ``.safetensors`` and how they nest, if it says so."""
    library = safetensors()
    try:
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
        return library.load_file(path), metadata.get(NESTING)
    except Exception as error:
        # Its errors have a type of its own, which no other module knows.
        raise FormatError(f"{path} is no safetensors file, or is damaged: {error}") from error


def safetensors() -> Any:
    """Return the package that reads and writes safetensors, or raise a FormatError."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise FormatError(
            "files in .safetensors need a package: pip install 'tinyckpt[safetensors]'; "
            "or write .npz"
        ) from error
    return safetensors.numpy
