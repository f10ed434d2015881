"""Synthetic PyTorch memory snapshots, as plain dicts, and lists of samples."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FRAMES = [{"filename": "train.py", "line": 12, "name": "forward"}]
BEGAN = 1_700_000_000_000_000  # microseconds


def event(
    action: str, address: int, size: int, moment: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return an event; its time is in seconds after the start."""
    timed = {} if moment is None else {"time_us": BEGAN + round(1e6 * moment)}
    return {
        "action": action, "addr": address, "size": size, "stream": 0, "frames": FRAMES,
        **timed, **more,
    }  # fmt: skip


def segment(device: int, address: int, blocks: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return a segment of contiguous blocks: their bytes and states."""
    placed, at = [], address
    for size, state in blocks:
        rounded = -(-size // 512) * 512
        placed.append(
            {"address": at, "size": rounded, "requested_size": size, "state": state, "frames": []}
        )
        at += rounded
    return {
        "device": device, "address": address, "total_size": at - address, "stream": 0,
        "segment_type": "large", "allocated_size": 0, "active_size": 0, "is_expandable": False,
        "segment_pool_id": (0, 0), "frames": [], "blocks": placed,
    }  # fmt: skip


def snapshot(*traces: Sequence[dict[str, Any]], segments: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a snapshot: the events of each device."""
    return {
        "segments": list(segments),
        "device_traces": [list(trace) for trace in traces],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                               "garbage_collection_threshold": 0.0, "roundup_power2_divisions":
                               {"1": 0}, "expandable_segments": False},
        "external_annotations": [],
    }  # fmt: skip


def training(peak: int = 4096, base: int = 10_000) -> dict[str, Any]:
    """Return a snapshot of one training step: up to a peak in four parts, down again."""
    part, trace = peak // 4, []
    for i in range(4):
        trace.append(event("segment_alloc", 2**40 + 2**20 * i, 2**20, 0.1 * i))
        trace.append(event("alloc", 2**40 + 2**20 * i, part, 0.1 * i))
    for i in reversed(range(4)):
        trace.append(event("free_requested", 2**40 + 2**20 * i, part, 0.8 - 0.1 * i))
        trace.append(event("free_completed", 2**40 + 2**20 * i, part, 0.8 - 0.1 * i))
    return snapshot(trace, segments=[segment(0, 2**30, [(base, "active_allocated")])])


def pickled(tmp_path: Path, content: Any, name: str = "run.pickle", protocol: int = 4) -> Path:
    """Write a pickle as ``torch.cuda.memory._dump_snapshot`` does."""
    path = tmp_path / name
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def listed(tmp_path: Path, pairs: Sequence[tuple[float, int]], name: str = "run.json") -> Path:
    """Write samples as JSON, or as CSV."""
    path = tmp_path / name
    if path.suffix == ".json":
        path.write_text(json.dumps(pairs))
    else:
        path.write_text("seconds,bytes\n" + "".join(f"{t},{b}\n" for t, b in pairs))
    return path
