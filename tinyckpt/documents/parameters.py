"""Files of parameters and of whole training states: ``.npz``, or ``.safetensors`` for exchange.

Every leaf of the tree is an array under its path, such as ``parameters/layers/0/w``, so that other
programs can read the file; how they nest stands beside them as JSON, with a checksum of all.
Reading gives the tree that was saved, or one error: a file that is damaged in any bit is refused,
unless the bit means nothing, as in a date. Files without a checksum, which earlier versions wrote,
load; in a ``.safetensors`` of theirs nothing detects a flipped bit of a number. Sizes are checked
before memory is taken, and nothing in a file is ever run.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinyckpt.base.errors import FormatError, GraphError
from tinyckpt.base.files import replacing, write_atomically
from tinyckpt.base.tree import Tree, check_depth
from tinyckpt.core.graph import checked_dtype
from tinyckpt.documents.archives import read_archive
from tinyckpt.documents.reader import open_regular
from tinyckpt.training.interrupted import WHAT_TO_DO, is_mixed

NESTING = "__tree__"  # the entry that says how the arrays nest
NESTINGS = '{"dict": ', '{"list": ', '{"tuple": '  # how what it says begins
CHECKSUM = "__tree__/checksum"  # of it and of all arrays; no array of a tree has such a name
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
        FormatError: if the tree holds something else, or a training state that a step left in its
            middle, or the file cannot be written.

    >>> import numpy as np, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_params({"w": np.ones(2), "layers": [np.zeros(1)]}, f"{folder}/a.npz")
    ...     tc.load_params(f"{folder}/a.npz")
    {'w': array([1., 1.]), 'layers': [array([0.])]}
    """
    check_depth("the tree", tree, FormatError)
    arrays: dict[str, Any] = {}
    nesting = json.dumps(parted(tree, "", arrays))
    if kind_of(path) == ".npz":
        texts = {NESTING: nesting, CHECKSUM: checksum(nesting, arrays)}
        entries = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
        # As np.savez does, which takes no array by the name of one of its own arguments.
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in {**arrays, **entries}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return
    library = safetensors()
    # That format has one order of bytes.
    arrays = {name: a.astype(a.dtype.newbyteorder("<"), copy=False) for name, a in arrays.items()}
    texts = {NESTING: nesting, CHECKSUM: checksum(nesting, arrays)}
    try:
        content = library.save(arrays, metadata=texts)
    except Exception as error:
        # Its errors have a type of its own, which no other module knows.
        raise FormatError(f"cannot write {path}: {error}") from error
    write_atomically(path, content)


def load_params(path: str | os.PathLike[str]) -> Tree:
    """Return what ``save_params`` wrote; of another's file, its arrays by their names.

    Raises:
        FormatError: if the file cannot be read, or is damaged.
    """
    kind = kind_of(path)
    with open_regular(path) as file:
        if kind == ".npz":
            arrays = read_archive(file, path)
            texts = {name: text_in(arrays, name) for name in (NESTING, CHECKSUM) if name in arrays}
        else:
            arrays, texts = safetensors_file(path)
    if NESTING not in texts and CHECKSUM not in texts:
        return arrays
    try:
        if NESTING not in texts:
            raise ValueError("it does not say how its arrays nest")
        nesting = texts[NESTING]
        if texts.get(CHECKSUM) not in (None, checksum(nesting, arrays)):
            raise ValueError("its checksum is not that of its arrays and their nesting")
        left = dict(arrays)
        tree = joined(json.loads(nesting), "", left)
        if left:
            raise ValueError(f"its nesting leaves out {', '.join(left):.80}")
    except GraphError as error:
        raise FormatError(f"cannot read {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is no file of parameters, or is damaged: {error}") from error
    return tree


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
        if is_mixed(tree):
            raise FormatError(f"{path.removesuffix('/') or 'the tree'}: {WHAT_TO_DO}")
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
    where = path.removesuffix("/") or "the tree"
    if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind == "O":
        raise FormatError(
            f"{where}: expected an array, got a {type(tree).__name__}; legal are arrays of "
            "numbers, and dicts, lists and tuples of them"
            + (", such as its _asdict()" if hasattr(tree, "_asdict") else "")
        )
    # A type that another package registered is read back as bytes without a meaning.
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
    if array.dtype.type is np.record:  # of which files only say what it is made of
        array = array.view(np.dtype((np.void, array.dtype)))
    # NumPy's files know no 16-bit brain floats: their bits are kept, and their name.
    stored = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    arrays[name] = np.asarray(stored, order="C")
    return [name, array.dtype.name]


def is_name(key: Any) -> bool:
    """Whether a key can be part of an array's name in a file of either kind."""
    if not isinstance(key, str) or key in ("", *RESERVED):
        return False
    return not set(key) & {"/", "\0"} and key.encode(errors="replace").decode() == key


def joined(nesting: Any, path: str, arrays: dict[str, Any]) -> Tree:
    """Return the tree of arrays that nest as JSON data says, and take them out of ``arrays``.

    Raises:
        ValueError: if it is no such data, or is about other arrays.
    """
    where = path.removesuffix("/") or "the tree"
    match nesting:
        case None:
            return None
        case [str(name), str(dtype)]:
            if name != (path.removesuffix("/") or "array") or name not in arrays:
                raise ValueError(f"{where} is to be the array {name!r:.80}, which is elsewhere")
            array = arrays.pop(name)
            # Records come back as what they are made of; so did those of earlier versions.
            stored = "uint16" if dtype == "bfloat16" else dtype.replace("record", "void")
            if array.dtype.name != stored:
                raise ValueError(f"{where} is to be of {dtype:.80}, and is of {array.dtype}")
            if dtype != "bfloat16":
                return array
            # A machine with the other order of bytes may have written it.
            return array.astype(np.uint16, copy=False).view(checked_dtype(dtype))
        case {"dict": dict(items), **others} if not others:
            return {key: joined(value, f"{path}{key}/", arrays) for key, value in items.items()}
        case {"list": list(items), **others} if not others:
            return [joined(item, f"{path}{i}/", arrays) for i, item in enumerate(items)]
        case {"tuple": list(items), **others} if not others:
            return tuple(joined(item, f"{path}{i}/", arrays) for i, item in enumerate(items))
    raise ValueError(f"{where} is neither an array nor a dict, a list or a tuple: {nesting!r:.80}")


def checksum(nesting: str, arrays: dict[str, Any]) -> str:
    """Return a checksum of arrays, with their names, types and shapes, and of how they nest."""
    digest = hashlib.sha256(nesting.encode())
    for name in sorted(arrays.keys() - {NESTING, CHECKSUM}):
        array: Any = np.ascontiguousarray(arrays[name])
        # A CRC-32 of the numbers: it finds every error of up to 32 bits in a row, and is as fast as
        # files are read. Bytes are viewed, since dates and their like show no others theirs.
        crc = zlib.crc32(array.reshape(-1).view(np.uint8)) if array.nbytes else 0
        digest.update(f"\0{name}\0{array.dtype.str}\0{arrays[name].shape}\0{crc}\0".encode())
    return digest.hexdigest()


def text_in(arrays: dict[str, Any], name: str) -> str:
    """Take the text of an entry out of a file's arrays."""
    array = arrays.pop(name)
    if array.dtype != np.uint8 or array.ndim != 1:
        raise FormatError(f"{name} is no text, but an array of {array.dtype}")
    return bytes(array).decode(errors="replace")


def safetensors_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays of a ``.safetensors``, and its texts that are about all of them."""
    library = safetensors()
    try:
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
        arrays = library.load_file(path)
    except Exception as error:
        # Its errors have a type of its own, which no other module knows.
        raise FormatError(f"{path} is no safetensors file, or is damaged: {error}") from error
    if {NESTING, CHECKSUM} & metadata.keys() and not metadata.keys() <= {NESTING, CHECKSUM}:
        raise FormatError(f"{path} is damaged: it says {', '.join(metadata):.80}")
    if NESTING not in metadata and any(text.startswith(NESTINGS) for text in metadata.values()):
        raise FormatError(f"{path} is damaged: it says how its arrays nest under another name")
    return arrays, metadata


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
