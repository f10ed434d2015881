"""What pytest does not look into for doctests: what is for frameworks that are not installed."""

from importlib.util import find_spec

FRAMEWORKS = ("jax", "torch")
# Modules that stand for others: see tinyckpt.base.module_aliases.
collect_ignore = ["tinyckpt/means.py", "tinyckpt/viz.py", "viz/wheel_alias.py"]
if find_spec("anywidget") is None:
    collect_ignore.append("viz/widget/live.py")
collect_ignore_glob = [
    pattern.format(name)
    for name in FRAMEWORKS
    if find_spec(name) is None
    for pattern in ("tinyckpt/interop/{}/*", "tests/{}_*.py")
]
