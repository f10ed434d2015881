"""Memory-saving graph rewrites: compressed activations, memory-sharing norms, chunked losses.

``compress_activations`` and ``low_memory_bp`` change gradients or parameters; ``chunked`` and
``chunked_cross_entropy`` change neither.
"""
