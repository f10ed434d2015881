"""Module aliases: one module object under two names, its submodules too (PEP 451 finder).

``tinyckpt.viz`` is the name of the pictures' package; scripts that say ``import viz`` get the same
module object, so that no class exists twice. Nothing here is specific to that package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasFinder(MetaPathFinder, Loader):
    """Finds the submodules of an alias: those of the module that it stands for.

    Attributes:
        alias: the other name.
        target: the full name of the module.
    """

    def __init__(self, alias: str, target: str) -> None:
        self.alias, self.target = alias, target
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a submodule of the alias; None for all other names."""
        return ModuleSpec(name, self) if name.startswith(f"{self.alias}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that an alias stands for, after importing it."""
        module = import_module(self.target + spec.name.removeprefix(self.alias))
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, in whose place the import system has put the alias's."""
        assert module.__spec__ is not None
        module.__spec__ = self.specs.pop(module.__spec__.name)


def alias_module(alias: str, target: str) -> None:
    """Make a second name for a module and for all of its submodules.

    Args:
        alias: the new name, of a top-level module.
        target: the full name of the module, which is imported.

    Raises:
        ImportError: if the module cannot be imported.

    >>> alias_module("units_of_tinyckpt", "tinyckpt.base.units")
    >>> import tinyckpt.base.units, units_of_tinyckpt
    >>> units_of_tinyckpt is tinyckpt.base.units
    True
    """
    import_module(target)
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{target}.")]:
        sys.modules[alias + name.removeprefix(target)] = sys.modules[name]
    sys.meta_path.insert(0, AliasFinder(alias, target))
