"""Offloading: values copied to host memory and back, beside computation."""
