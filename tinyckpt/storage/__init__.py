"""Stores for offloaded values: host memory, pinned host memory with CUDA streams, disk."""

from tinyckpt.storage import offload_steps

# Offload and fetch, the steps that the engine takes from here.
offload_steps.install()
