"""Generator of the API reference: a page per module with public names, and an index.

Public names are the ``__all__`` of the packages below. Each name is documented once, on the page of
the module that defines it, under the name by which it is imported.
"""

from __future__ import annotations

import inspect
import shutil
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import command
import policy_table

# Their names are documented on the pages of the defining modules.
PACKAGES = ("tinyckpt", "tinyckpt.training", "tinyckpt.viz")
# Their names are documented on one page; some need an optional dependency.
NAMESPACES = {
    "tinyckpt.cost": None,
    "tinyckpt.networks": None,
    "tinyckpt.linalg": None,
    "tinyckpt.tree": None,
    "tinyckpt.checkpoint_policies": None,
    "tinyckpt.pipeline": None,
    "tinyckpt.techniques": None,
    "tinyckpt.interop.torch": "torch",
    "tinyckpt.interop.jax": "jax",
}
# Public names of namespaces without a usable ``__all__``.
LISTED = {
    "tinyckpt.cost": (
        "given", "evaluations", "flops", "traffic", "measured", "custom", "with_sizes", "in_nodes",
        "cost_of", "cost_of_order",
    ),
    "tinyckpt.tree": ("leaves", "map_leaves"),
    "tinyckpt.linalg": ("matmul", "norm", "vector_norm", "matrix_norm"),
    "tinyckpt.checkpoint_policies": (
        "everything_saveable", "nothing_saveable", "dots_saveable",
        "dots_with_no_batch_dims_saveable", "save_only_these_names", "save_any_names_but_these",
        "save_anything_except_these_names", "save_from_both_policies",
        "save_and_offload_only_these_names", "offload_dot_with_no_batch_dims",
    ),
}  # fmt: skip
# Data, neither function nor class: defining module, type, description.
DATA = {
    "tinyckpt.POLICIES": (
        "tinyckpt.planner.portfolio.policies",
        "dict[str, Policy]",
        "The policies, by name.",
    ),
    "tinyckpt.PRIMITIVES": ("tinyckpt.ops", "dict[str, Primitive]", "The primitives, by name."),
    "tinyckpt.PolicyLike": (
        "tinyckpt.planner.portfolio.resolve_policy",
        "str | Policy | Callable",
        "A policy argument of :func:`tinyckpt.plan`: a name, a policy, or a function of the"
        " graph, or of the graph and its costs, that returns a schedule or an order.",
    ),
    "tinyckpt.TrainingGraph": (
        "tinyckpt.core.graph",
        "NewType",
        "A :class:`tinyckpt.Graph` with its backward pass, as :func:`tinyckpt.differentiate`"
        " returns it.",
    ),
    "tinyckpt.networks.NETWORKS": (
        "tinyckpt.networks",
        "dict[str, tuple]",
        "Networks of the command line: the syntax, constructor and description of each.",
    ),
    "tinyckpt.pipeline.PIPELINES": (
        "tinyckpt.pipeline",
        "dict[str, Callable[..., Pipeline]]",
        "The pipeline schedules, by name.",
    ),
    "tinyckpt.techniques.TECHNIQUES": (
        "tinyckpt.techniques",
        "dict[str, Callable]",
        "The memory-saving techniques, by name.",
    ),
    "tinyckpt.__version__": ("tinyckpt", "str", "The version."),
}
# In the order of data flow; matched by the longest prefix of module names.
SECTIONS = {
    "Tracing and autodiff": (
        "tinyckpt", "tinyckpt.core.tracing", "tinyckpt.core.autodiff", "tinyckpt.core.graph",
        "tinyckpt.core.primitive", "tinyckpt.core.cuts",
    ),
    "Planning": (
        "tinyckpt.planner", "tinyckpt.core.policies", "tinyckpt.checkpoint_policies",
        "tinyckpt.cost", "tinyckpt.core.costs", "tinyckpt.core.schedule", "tinyckpt.core.lowering",
    ),
    "Execution": (
        "tinyckpt.training.transformations", "tinyckpt.core.replay", "tinyckpt.core.trace",
        "tinyckpt.core.execute", "tinyckpt.codegen", "tinyckpt.storage",
    ),
    "Visualisation": ("tinyckpt.viz",),
    "Operators": ("tinyckpt.ops", "tinyckpt.linalg"),
    "Networks": ("tinyckpt.networks",),
    "Training and other techniques": (
        "tinyckpt.training", "tinyckpt.techniques", "tinyckpt.pipeline",
    ),
    "Other frameworks": ("tinyckpt.interop",),
    "Files and errors": (
        "tinyckpt.documents", "tinyckpt.base.errors", "tinyckpt.base.tree", "tinyckpt.tree",
    ),
}  # fmt: skip


def write(app: Any) -> None:
    """Write the generated pages into ``reference/``: modules, policies, command line."""
    folder = Path(app.srcdir) / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pages = {
        "policies": policy_table.policies_page(),
        "command": command.command_page(),
        "index": index_page(),
    }
    for module, names in public_names().items():
        pages[module] = module_page(module, names)
    for page, text in pages.items():
        (folder / f"{page}.md").write_text(text, encoding="utf-8")


def public_names() -> dict[str, list[str]]:
    """Return the full names on each module's page; each public name occurs once."""
    found: dict[str, list[str]] = defaultdict(list)
    known: set[int] = set()
    for package in PACKAGES:
        for name in import_module(package).__all__:
            full = f"{package}.{name}"
            value = value_of(full)
            if full in DATA:
                found[DATA[full][0]].append(full)
            elif not isinstance(value, ModuleType) and (package == "tinyckpt" or new(value, known)):
                found[value.__module__].append(full)
                known.add(id(value))
    for namespace, extra in NAMESPACES.items():
        if extra is None or find_spec(extra):
            for name in names_of(namespace):
                full = f"{namespace}.{name}"
                value = value_of(full)
                if full in DATA or new(value, known):
                    found[namespace].append(full)
                    known.add(id(value))
    return found


def new(value: Any, known: set[int]) -> bool:
    """Whether a value has not been assigned to a page yet."""
    return id(value) not in known


def module_of(name: str) -> ModuleType:
    """Return a module by its import name, or as an attribute of its package."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        package, _, last = name.rpartition(".")
        module: ModuleType = getattr(import_module(package), last)
        return module


def value_of(name: str) -> Any:
    """Return the object of a full name."""
    package, _, last = name.rpartition(".")
    return getattr(module_of(package), last)


def names_of(namespace: str) -> list[str]:
    """Return the public names of a module."""
    return list(LISTED.get(namespace) or module_of(namespace).__all__)


def module_page(module: str, names: list[str]) -> str:
    """Return a module's page: its docstring, and its names."""
    parts = [
        f"# {module}",
        eval_rst(f".. automodule:: {module_of(module).__name__}\n   :no-index:"),
    ]
    parts += [eval_rst(directive(name)) for name in names]
    return "\n\n".join(parts) + "\n"


def directive(name: str) -> str:
    """Return the Sphinx directive for a name; an alias points to the original."""
    package, _, last = name.rpartition(".")
    if name in DATA:
        _, kind, text = DATA[name]
        return f".. py:data:: {last}\n   :module: {package}\n   :type: {kind}\n\n   {text}"
    value = value_of(name)
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, Exception) else "class"
        fields = ", ".join(getattr(value, "_fields", ()))  # of a named tuple: "Alias for field"
        without = f"\n   :exclude-members: {fields}" if fields else ""
        return f".. auto{kind}:: {name}\n   :members:{without}"
    if not callable(value):
        return f".. py:data:: {last}\n   :module: {package}\n   :type: {type(value).__name__}"
    own = getattr(value, "__name__", last)
    if own != last and getattr(module_of(package), own, None) is value:
        shown = f"{last}{inspect.signature(value)}\n   :module: {package}"
        return f".. py:function:: {shown}\n\n   Another name of :func:`~{package}.{own}`."
    return f".. autofunction:: {name}"


def eval_rst(text: str) -> str:
    """Return reStructuredText embedded in Markdown."""
    return f"```{{eval-rst}}\n{text}\n```"


def index_page() -> str:
    """Return the index of all modules, by section, with their names."""
    modules = public_names()
    parts = [
        "# Reference",
        "All public names, by defining module. `import tinyckpt as tc` has most of them; the others"
        " are shown with their import path.",
    ]
    for section, members in sectioned(modules).items():
        parts.append(f"## {section}")
        for module in members:
            names = ", ".join(f"{{py:obj}}`~{name}`" for name in modules[module])
            summary = (module_of(module).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
            parts.append(f"[{module}]({module}.md)\n: {summary}\n: {names}")
    listed = "\n".join(m for members in sectioned(modules).values() for m in members)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{listed}\n```")
    return "\n\n".join(parts) + "\n"


def sectioned(modules: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the modules of each section, assigned by longest matching prefix."""
    found: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for module in sorted(modules):
        prefixes = [
            (len(prefix), section)
            for section, all_prefixes in SECTIONS.items()
            for prefix in all_prefixes
            if module == prefix or module.startswith(f"{prefix}.")
        ]
        found[max(prefixes)[1]].append(module)
    return found
