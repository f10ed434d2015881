"""Stores for offloaded values: host memory, pinned host memory with CUDA streams, disk."""

from tinyckpt.storage import cupy_backend, offload_steps

# What the engine takes from here: offload and fetch, and the backend whose host memory is pinned.
offload_steps.install()
cupy_backend.install()
