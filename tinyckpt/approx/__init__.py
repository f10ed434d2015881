"""Program rewrites for less memory: compressed activations, LowMemoryBP norms, chunked losses.

``compressing`` and ``rewrite`` change gradients or parameters, ``chunked`` and ``losses`` neither.
"""
