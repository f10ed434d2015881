"""Models of transformers from a configuration file alone, on the device ``meta``: no weights.

In: config.json, as it is published beside a model's weights, and the shape of a batch. Out: the
model, in training, and a batch of token ids and labels, of shapes and types without data.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import Any

import torch

from tinyckpt.base.errors import BackendError, FormatError, GraphError
from tinyckpt.documents.json_reader import read_bytes
from tinyckpt.interop.importer_checks import error_text

MOST_LAYERS = 1000
# Ends of the names of classes whose labels are tokens.
LANGUAGE = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")


def model_of_config(path: str, batch: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return a language model of transformers, in training, and a batch for it.

    The model has the class, sizes and dtype of the file, and no cache of keys and values, which
    training does not read. Nothing is downloaded, and no code is run but that of transformers.

    Args:
        path: of a config.json.
        batch: sequences and tokens each, such as ``"1x2048"``.

    Raises:
        BackendError: if transformers is not installed.
        GraphError: if the file is no configuration of a model that takes tokens and labels, or the
            sequences are longer than it takes.
    """
    extents = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})", batch)
    if extents is None:
        raise GraphError(f"batch {batch!r}: expected sequences and tokens each, such as 1x2048")
    if find_spec("transformers") is None:
        raise BackendError(
            "a configuration needs transformers, which is not installed: "
            "pip install 'transformers>=5'"
        )
    model = on_meta(path, settings_of(path))
    sequences, length = map(int, extents.groups())
    longest = getattr(model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and 0 < longest < length:  # -1: any number
        raise GraphError(f"{path}: takes at most {longest} tokens, the batch has {length} each")
    words = torch.zeros(sequences, length, dtype=torch.long, device="meta")
    return model.train(), {"input_ids": words, "labels": words.clone()}


def settings_of(path: str) -> dict[str, Any]:
    """Return the settings in a configuration file.

    Raises:
        GraphError: if it cannot be read, is no JSON object, does not say what model it is of, or
            has fewer than no layers, or more than any model.
    """
    expected = "expected the config.json of a model"
    try:
        settings = json.loads(read_bytes(path).decode(), object_hook=number_or_object)
    except FormatError as error:
        raise GraphError(f"{error}; {expected}") from None
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{path}: no JSON: {error}; {expected}") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise GraphError(f"{path} has no model_type; {expected}")
    for name, value in settings.items():
        if "layers" in name and isinstance(value, int) and not 0 <= value <= MOST_LAYERS:
            raise GraphError(f"{path}: {name} is {value:,}; expected 0 to {MOST_LAYERS:,}")
    return settings


def number_or_object(found: dict[str, Any]) -> Any:
    """Return the number that transformers writes as an object, since JSON has no infinity."""
    number = found.get("__float__")
    return float(number) if isinstance(number, str) and len(found) == 1 else found


def on_meta(path: str, settings: dict[str, Any]) -> torch.nn.Module:
    """Return the model of some settings, on the device ``meta``.

    Raises:
        BackendError: if transformers cannot import its class, such as beside another torchvision.
        GraphError: if transformers does not know it, or it has no loss of tokens and labels.
    """
    import transformers

    classes = settings.get("architectures")
    name = str(classes[0]) if isinstance(classes, list) and classes else ""
    try:
        kind = getattr(transformers, name or "AutoModelForCausalLM", None)
        model = None if kind is None else without_weights(kind, settings)
    except ImportError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise BackendError(
            f"transformers is installed, and cannot import {name or settings['model_type']}: "
            f"{type(cause).__name__}: {cause}"
        ) from error
    except Exception as error:  # whatever a file makes transformers raise
        raise GraphError(
            f"{path}: transformers makes no model of it: {error_text(error)}"
        ) from None
    if model is None:
        raise GraphError(
            f"{path}: architectures names {name}, which this version of transformers does not "
            "have; a model of other code comes from path/to/file.py:function"
        )
    found = type(model).__name__
    if getattr(model, "main_input_name", "") != "input_ids" or not found.endswith(LANGUAGE):
        raise GraphError(
            f"{path}: {found} has no loss of tokens and their labels; expected a language model; "
            "any other, and its batch, comes from path/to/file.py:function"
        )
    return model


def without_weights(kind: Any, settings: dict[str, Any]) -> torch.nn.Module:
    """Return a model of some class of transformers on the device ``meta``, without a cache."""
    from transformers import AutoConfig

    given = {key: value for key, value in settings.items() if key != "transformers_version"}
    config = AutoConfig.for_model(**given)
    config.use_cache = False
    dtype = getattr(config, "dtype", None) or torch.float32
    make = getattr(kind, "_from_config", None) or kind.from_config
    with torch.device("meta"):
        model: torch.nn.Module = make(config, dtype=dtype)
    return model
