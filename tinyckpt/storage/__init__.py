"""Stores for offloaded values: host memory, pinned host memory with CUDA streams, disk."""
