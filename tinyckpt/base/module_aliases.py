"""Module aliases: one module object under two names, submodules included (a PEP 451 finder).

``tinyckpt.viz`` is the package of visualisers; scripts that say ``import viz`` get the same module
object, so that no class exists twice. Nothing here is specific to that package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasFinder(MetaPathFinder, Loader):
    """Import finder and loader for the submodules of an alias: resolves them to the target's.

    Attributes:
        alias: the additional name.
        target: the full name of the module.
    """

    def __init__(self, alias: str, target: str) -> None:
        self.alias, self.target = alias, target
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a submodule of the alias; None for any other name."""
        return ModuleSpec(name, self) if name.startswith(f"{self.alias}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import and return the module that an alias refers to."""
        module = import_module(self.target + spec.name.removeprefix(self.alias))
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import system has replaced by the alias's."""
        assert module.__spec__ is not None
        module.__spec__ = self.specs.pop(module.__spec__.name)


def alias_module(alias: str, target: str) -> None:
    """Register a second name for a module and all of its submodules.

    Args:
        alias: the new name, of a top-level module.
        target: the full name of the module, which is imported.

    Raises:
        ImportError: if the module cannot be imported.

    >>> alias_module("units_of_tinyckpt", "tinyckpt.base.units")
    >>> import units_of_tinyckpt
    >>> from tinyckpt.base import units
    >>> units_of_tinyckpt is units
    True
    """
    import_module(target)
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{target}.")]:
        sys.modules[alias + name.removeprefix(target)] = sys.modules[name]
    sys.meta_path.insert(0, AliasFinder(alias, target))
