"""CUDA devices that are not here: what a training step takes of one, term by term.

In: a recording of a step as on CUDA (``eager``), and a device. Out: a ``DeviceMemory``: what is
allocated, what the caching allocator reserves for it, and what is beside, each term with where it
comes from. Capacities are those that PyTorch states in its errors of memory. A calibration, made
once where such a device is, replaces what is assumed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from tinyckpt.base.errors import BackendError, FormatError, GraphError, did_you_mean
from tinyckpt.base.text_table import table
from tinyckpt.base.units import size_text
from tinyckpt.codegen.caching_allocator import (
    MIB,
    CachingAllocator,
    Interval,
    replay_steps,
    rounded,
)
from tinyckpt.documents.json_reader import LARGEST, Reader, write
from tinyckpt.interop.torch.checkpoint_memory import Wrapping

GIB = 2**30
CONTEXT = 600 * MIB  # the CUDA context and kernels: 0.49 GiB on an A100, 0.58 on an RTX 5090
CONTEXT_HOPPER = 850 * MIB  # 641 to 847 MiB of 20 models' steps on an H200, CUDA 13
CUBLAS = 8 * MIB + 128 * 1024  # PyTorch's default workspace of cuBLAS, :4096:2:16:8
CUBLAS_HOPPER = 32 * MIB
MEASURED = "measured, by a calibration"
FILE = ".json"  # the end of the name of a calibration's file


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A CUDA device.

    Attributes:
        name: its name.
        capacity: bytes that the driver reports.
        context: of these, bytes that the process takes beside PyTorch's allocator.
        cublas: bytes of cuBLAS's workspace, which PyTorch allocates at the first matrix product of
            each thread.
        is_measured: whether these are measured, not assumed.
    """

    name: str
    capacity: int
    context: int = CONTEXT
    cublas: int = CUBLAS
    is_measured: bool = False

    @property
    def workspaces(self) -> int:
        """Bytes of cuBLAS's workspaces: one for the forward pass's thread, one for autograd's."""
        return 2 * self.cublas


DEVICES = {
    name: CudaDevice(name, int(gib * GIB), *own)
    for own, sizes in (
        ((CONTEXT, CUBLAS), {
            "T4-16GB": 14.75, "A10-24GB": 21.99, "RTX4090-24GB": 23.64, "RTX5090-32GB": 31.37,
            "V100-32GB": 31.75, "A100-40GB": 39.50, "L40S-48GB": 44.52, "A100-80GB": 79.14,
        }),
        ((CONTEXT_HOPPER, CUBLAS_HOPPER), {
            "H100-80GB": 79.11, "H100-94GB": 93.0, "H200-141GB": 139.0,
        }),
    )
    for name, gib in sizes.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What training takes of a device, in bytes.

    Attributes:
        device: which one.
        sources, state, step: of parameters, buffers and arguments, of the optimizer's state, and of
            activations and gradients at the peak, in the allocator's sizes.
        fragmentation: reserved by the allocator beyond what is allocated.
        fits: whether the device has as much.
    """

    device: CudaDevice
    sources: int
    state: int
    step: int
    fragmentation: int
    fits: bool

    @property
    def reserved(self) -> int:
        """What ``torch.cuda.max_memory_reserved`` is to say."""
        lasting = self.sources + self.state + self.device.workspaces
        return lasting + self.step + self.fragmentation

    @property
    def total(self) -> int:
        """All that the process takes of the device."""
        return self.reserved + self.device.context

    def __str__(self) -> str:
        device = self.device
        assumed = MEASURED if device.is_measured else "assumed"
        documented = MEASURED if device.is_measured else "PyTorch's default"
        rows = [
            ("parameters, buffers, arguments", self.sources, "their sizes, in units of 512 bytes"),
            ("optimizer state", self.state, "the same"),
            ("activations, gradients", self.step, "a recording without the device or its kernels"),
            ("cuBLAS workspaces", device.workspaces, documented),
            (
                "fragmentation",
                self.fragmentation,
                "the allocator's rules, replayed for three steps",
            ),
            ("CUDA context", device.context, assumed),
            ("total", self.total, f"of {size_text(device.capacity)}"),
        ]
        return table(
            (f"on {device.name}", "at the peak", "known from"),
            [(name, size_text(nbytes), why) for name, nbytes, why in rows],
        )


def device_of(name: str | os.PathLike[str]) -> CudaDevice:
    """Return a device by its name, or by the file that a calibration wrote.

    Raises:
        GraphError: if there is neither.
        FormatError: if the file cannot be read, or is none.

    >>> device_of("H100-80GB").cublas // 2**20
    32
    """
    if isinstance(name, str) and name in DEVICES:
        return DEVICES[name]
    if not isinstance(name, str | os.PathLike) or not str(name).endswith(FILE):
        raise GraphError(
            f"device {name!r:.80}{did_you_mean(str(name), DEVICES)}; known are "
            f"{', '.join(DEVICES)}, and a {FILE} file that tinyckpt torch --calibrate wrote"
        )
    reader = Reader(name)
    document = reader.document("device")
    sizes: dict[str, int] = {
        size: reader.count(reader.get(document, size, int, "device"), f"device.{size}", LARGEST)
        for size in ("capacity", "context", "cublas")
    }
    return CudaDevice(reader.get(document, "name", str, "device"), **sizes, is_measured=True)


def memory_on(
    device: CudaDevice,
    wrapping: Wrapping,
    chosen: Collection[str],
    state: Sequence[int],
    temporaries: Sequence[int] = (),
) -> DeviceMemory:
    """Return what training takes of a device with some modules wrapped.

    Args:
        device: the device.
        wrapping: the memory model of a step, recorded as on CUDA.
        chosen: the modules that are wrapped.
        state: bytes of each tensor of the optimizer's state.
        temporaries: of each that its step makes, after the backward pass.
    """
    recording = wrapping.recording
    lasting = list(dict(recording.sources.values()).values())
    lasting.append(recording.source_bytes - sum(lasting))  # the arguments
    sources = sum(map(rounded, lasting))
    memory = CachingAllocator(device.capacity - device.context)
    end = wrapping.last + 1
    later = [Interval(end, end + 1, nbytes) for nbytes in temporaries if nbytes]
    step_memory = [*wrapping.intervals(chosen), *later]
    lasting += [device.cublas, device.workspaces - device.cublas]
    replay_steps(memory, lasting, step_memory, filter(None, state))
    states = sum(map(rounded, state))
    step = wrapping.evaluate(chosen)[0]
    allocated = sources + states + step + device.workspaces
    return DeviceMemory(
        device, sources, states, step, max(memory.most_reserved - allocated, 0), not memory.is_over
    )


def calibrate(path: str) -> CudaDevice:
    """Measure the CUDA device that is here, and write a file that ``device_of`` takes.

    In a process that has not multiplied matrices yet, alone on the device.

    Raises:
        BackendError: if there is none.
        FormatError: if the file cannot be written, or its name does not end with ".json".
    """
    if not path.endswith(FILE):
        raise FormatError(f"{path}: the file of a device ends with {FILE}")
    if not torch.cuda.is_available():
        raise BackendError("a calibration needs a CUDA device; torch.cuda.is_available() is False")
    torch.cuda.empty_cache()
    square = torch.ones(64, 64, device="cuda")
    before = torch.cuda.memory_allocated()
    square = square @ square  # of the same size as the one that it replaces
    torch.cuda.synchronize()
    cublas = torch.cuda.memory_allocated() - before
    free, capacity = torch.cuda.mem_get_info()
    context = capacity - free - torch.cuda.memory_reserved()
    name = torch.cuda.get_device_name()
    sizes = {"capacity": capacity, "context": context, "cublas": cublas}
    write("device", {"name": name, **sizes}, path)
    return CudaDevice(name, **sizes, is_measured=True)
