"""Offloading: values copied to host memory and back (prefetch), overlapped with computation."""
