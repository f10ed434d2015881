"""What pytest does not look into for doctests: packages for frameworks that are not installed."""

from importlib.util import find_spec

FRAMEWORKS = ("jax", "torch")
collect_ignore_glob = [
    f"tinyckpt/interop/{name}/*" for name in FRAMEWORKS if find_spec(name) is None
]
