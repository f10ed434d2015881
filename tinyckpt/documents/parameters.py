"""Parameter and training-state files: pytrees in ``.npz`` or ``.safetensors``, checksummed.

Every leaf of the tree is an array under its path, such as ``parameters/layers/0/w``, so that other
programs can read the file; the tree structure is an extra entry, as JSON, with a checksum of
everything. Loading returns the saved tree or raises: a file with any flipped bit is refused, unless
the bit has no meaning, as in a date. Files without a checksum, written by earlier versions, load;
in such a ``.safetensors`` a flipped bit of a number is not detected. Sizes are checked before
memory is allocated, and nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any

import numpy as np

from tinyckpt.base.errors import FormatError, GraphError
from tinyckpt.base.files import replacing, suffix_of, write_atomically
from tinyckpt.base.interrupted_step import MIXED_STATE_ADVICE, is_mixed
from tinyckpt.base.spec import checked_dtype
from tinyckpt.base.tree import Tree, check_depth
from tinyckpt.documents.json_reader import check_entries, open_regular

NESTING = "__tree__"  # the entry with the tree structure
NESTINGS = '{"dict": ', '{"list": ', '{"tuple": '  # prefixes of its JSON
CHECKSUM = "__tree__/checksum"  # of it and of all arrays; no leaf can have this name
RESERVED = (NESTING, "__metadata__")  # the second is reserved by safetensors
MOST_NAMED = 2**16 - 1 - len(".npy")  # bytes of an array's name; a .zip stores the length in two
FORMATS = ".npz", ".safetensors"


def save_params(tree: Tree, path: str | os.PathLike[str]) -> None:
    """Write arrays nested in dicts, lists and tuples, such as a training state, to a file.

    The write is atomic: a reader of the path, even after the process was killed, finds the previous
    file or the new one.

    Args:
        tree: arrays of NumPy or CuPy; the keys of dicts are strings without a slash, not empty,
            and neither ``__tree__`` nor ``__metadata__``. Named tuples are refused, since a file
            cannot record their class: pass ``_asdict()``.
        path: ends in ``.npz``, or ``.safetensors``, which needs the package of that name.

    Raises:
        FormatError: if the tree has other leaves, or is a training state left half updated by an
            interrupted step, or the file cannot be written.

    >>> import numpy as np, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_params({"w": np.ones(2), "layers": [np.zeros(1)]}, f"{folder}/a.npz")
    ...     tc.load_params(f"{folder}/a.npz")
    {'w': array([1., 1.]), 'layers': [array([0.])]}
    """
    check_depth("the tree", tree, FormatError)
    arrays: dict[str, Any] = {}
    nesting = json.dumps(flatten(tree, "", arrays))
    if format_of(path) == ".npz":
        texts = {NESTING: nesting, CHECKSUM: checksum(nesting, arrays)}
        entries = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
        import zipfile  # loads compression: import tinyckpt does without

        # Like np.savez, which however refuses arrays named as its own arguments.
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in {**arrays, **entries}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return
    library = safetensors()
    # The format is little-endian.
    arrays = {name: a.astype(a.dtype.newbyteorder("<"), copy=False) for name, a in arrays.items()}
    texts = {NESTING: nesting, CHECKSUM: checksum(nesting, arrays)}
    try:
        content = library.save(arrays, metadata=texts)
    except Exception as error:
        # SafetensorError, a type private to its extension module.
        raise FormatError(f"cannot write {path}: {error}") from error
    write_atomically(path, content)


def load_params(path: str | os.PathLike[str]) -> Tree:
    """Read a tree that ``save_params`` wrote; of any other file, its arrays by name.

    Raises:
        FormatError: if the file cannot be read, or is damaged.

    >>> import numpy as np, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/other.npz", w=np.ones(2))
    ...     tc.load_params(f"{folder}/other.npz")
    {'w': array([1., 1.])}
    """
    kind = format_of(path)
    with open_regular(path) as file:
        if kind == ".npz":
            from tinyckpt.documents.npz import read_archive  # as zipfile above

            arrays = read_archive(file, path)
            texts = {name: pop_text(arrays, name) for name in (NESTING, CHECKSUM) if name in arrays}
        else:
            arrays, texts = safetensors_file(path)
    if NESTING not in texts and CHECKSUM not in texts:
        return arrays
    try:
        if NESTING not in texts:
            raise ValueError("its tree structure is missing")
        nesting = texts[NESTING]
        if texts.get(CHECKSUM) not in (None, checksum(nesting, arrays)):
            raise ValueError("its checksum does not match its arrays and their nesting")
        check_entries(path, nesting)
        left = dict(arrays)
        tree = unflatten(json.loads(nesting), "", left)
        if left:
            raise ValueError(f"its tree structure omits {', '.join(left):.80}")
    except GraphError as error:
        raise FormatError(f"cannot read {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not a file of parameters, or is damaged: {error}") from error
    return tree


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a file, by its suffix."""
    kind = suffix_of(path)
    if kind not in FORMATS:
        raise FormatError(f"{path}: the name must end in {' or '.join(FORMATS)}")
    return kind


def flatten(tree: Tree, path: str, arrays: dict[str, Any]) -> Any:
    """Flatten a tree: return its structure as JSON data; add its arrays to ``arrays`` by path."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        if is_mixed(tree):
            raise FormatError(f"{path.removesuffix('/') or 'the tree'}: {MIXED_STATE_ADVICE}")
        for key in tree:
            if not is_name(key):
                raise FormatError(
                    f"{path or 'the tree'}: the key {key!r:.80}; keys are text without a slash"
                    + (f", such as {str(key)!r}" if isinstance(key, int) else "")
                    + f", not empty, and none of {', '.join(RESERVED)}"
                )
        return {"dict": {key: flatten(tree[key], f"{path}{key}/", arrays) for key in tree}}
    if type(tree) in (list, tuple):
        items = [flatten(item, f"{path}{number}/", arrays) for number, item in enumerate(tree)]
        return {type(tree).__name__: items}
    leaf = tree.get() if hasattr(tree, "get") and hasattr(tree, "dtype") else tree  # CuPy's
    where = path.removesuffix("/") or "the tree"
    if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind == "O":
        raise FormatError(
            f"{where}: expected an array, got a {type(tree).__name__}; legal are arrays of "
            "numbers, and dicts, lists and tuples of them"
            + (", such as its _asdict()" if hasattr(tree, "_asdict") else "")
        )
    # A dtype registered by another package would be loaded as raw bytes.
    if leaf.dtype.hasobject or (leaf.dtype.isbuiltin == 2 and leaf.dtype.name != "bfloat16"):
        raise FormatError(
            f"{where}: files have no {leaf.dtype}; legal are NumPy's own numbers, and bfloat16"
        )
    name = path.removesuffix("/") or "array"
    if len(name.encode()) > MOST_NAMED:
        raise FormatError(f"{name:.80}…: all keys together are longer than {MOST_NAMED} bytes")
    if isinstance(leaf, np.ma.MaskedArray):
        raise FormatError(f"{where}: files have no masks; legal are its .data and its .mask")
    array = np.asarray(leaf)
    if array.dtype.type is np.record:  # of which files record the fields only
        array = array.view(np.dtype((np.void, array.dtype)))
    # The .npy format has no bfloat16: its bits are stored as uint16, with the dtype's name.
    stored = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    arrays[name] = np.asarray(stored, order="C")
    return [name, array.dtype.name]


def is_name(key: Any) -> bool:
    """Whether a key can be part of an array's name in both formats."""
    if not isinstance(key, str) or key in ("", *RESERVED):
        return False
    return not set(key) & {"/", "\0"} and key.encode(errors="replace").decode() == key


def unflatten(nesting: Any, path: str, arrays: dict[str, Any]) -> Tree:
    """Unflatten a tree of the given structure, and remove its arrays from ``arrays``.

    Raises:
        ValueError: if the structure is malformed, or names other arrays.
    """
    where = path.removesuffix("/") or "the tree"
    match nesting:
        case None:
            return None
        case [str(name), str(dtype)]:
            if name != (path.removesuffix("/") or "array") or name not in arrays:
                raise ValueError(f"{where} names the array {name!r:.80}, which is elsewhere")
            array = arrays.pop(name)
            # Records are loaded as structured arrays, those of earlier versions too.
            stored = "uint16" if dtype == "bfloat16" else dtype.replace("record", "void")
            if array.dtype.name != stored:
                raise ValueError(f"{where}: expected {dtype:.80}, got {array.dtype}")
            if dtype != "bfloat16":
                return array
            # The file may be of a machine of the other byte order.
            return array.astype(np.uint16, copy=False).view(checked_dtype(dtype))
        case {"dict": dict(items), **others} if not others:
            return {key: unflatten(value, f"{path}{key}/", arrays) for key, value in items.items()}
        case {"list": list(items), **others} if not others:
            return [unflatten(item, f"{path}{i}/", arrays) for i, item in enumerate(items)]
        case {"tuple": list(items), **others} if not others:
            return tuple(unflatten(item, f"{path}{i}/", arrays) for i, item in enumerate(items))
    raise ValueError(f"{where} is neither an array nor a dict, a list or a tuple: {nesting!r:.80}")


def checksum(nesting: str, arrays: dict[str, Any]) -> str:
    """Return the SHA-256 of a tree's structure and of each array's name, dtype, shape and CRC."""
    digest = hashlib.sha256(nesting.encode())
    for name in sorted(arrays.keys() - {NESTING, CHECKSUM}):
        array: Any = np.ascontiguousarray(arrays[name])
        # A CRC-32 of the numbers detects every burst error of up to 32 bits, at the speed of the
        # disk. It reads a view as bytes, since dates and similar dtypes export no buffer.
        crc = zlib.crc32(array.reshape(-1).view(np.uint8)) if array.nbytes else 0
        digest.update(f"\0{name}\0{array.dtype.str}\0{arrays[name].shape}\0{crc}\0".encode())
    return digest.hexdigest()


def pop_text(arrays: dict[str, Any], name: str) -> str:
    """Remove a text entry from a file's arrays, and return it."""
    array = arrays.pop(name)
    if array.dtype != np.uint8 or array.ndim != 1:
        raise FormatError(f"{name} is not text, but an array of {array.dtype}")
    return bytes(array).decode(errors="replace")


def safetensors_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the arrays of a ``.safetensors`` file, and its metadata."""
    library = safetensors()
    try:
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
        arrays = library.load_file(path)
    except Exception as error:
        # SafetensorError, a type private to its extension module.
        raise FormatError(f"{path} is not a safetensors file, or is damaged: {error}") from error
    if {NESTING, CHECKSUM} & metadata.keys() and not metadata.keys() <= {NESTING, CHECKSUM}:
        raise FormatError(f"{path} is damaged: unknown metadata {', '.join(metadata):.80}")
    if NESTING not in metadata and any(text.startswith(NESTINGS) for text in metadata.values()):
        raise FormatError(f"{path} is damaged: its tree structure is under another name")
    return arrays, metadata


def safetensors() -> Any:
    """Import the package safetensors, or raise a FormatError that says how to install it."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise FormatError(
            "files in .safetensors need a package: pip install 'tinyckpt[safetensors]'; "
            "or write .npz"
        ) from error
    return safetensors.numpy
