"""Scope hoisting of a page's modules: order, what is left out, and what is refused."""

import re

import pytest

from viz.player.modules import bundled
from viz.player.page import FOLDER, script


def bundle(modules: dict[str, str], *entries: str, **options: list[str]) -> str:
    return bundled(modules.__getitem__, entries, **options)


def test_modules_come_once_each_after_their_imports() -> None:
    modules = {
        "last": 'import { a } from "./first.js";\nimport { b } from "./between.js";\nrun(a, b);\n',
        "between": 'import {\n  a,\n} from "../../player/assets/first.js";\nexport const b = a;\n',
        "first": "export async function a() {}\n",
    }
    assert bundle(modules, "first", "last") == ("async function a() {}\nconst b = a;\nrun(a, b);\n")


def test_cycle_of_imports_ends_with_the_module_that_was_met_first() -> None:
    modules = {
        "even": 'import { odd } from "./odd.js";\nexport function even() {}\n',
        "odd": 'import { even } from "./even.js";\nexport function odd() {}\n',
    }
    assert bundle(modules, "even") == "function odd() {}\nfunction even() {}\n"


def test_left_out_module_leaves_out_what_it_alone_imports() -> None:
    modules = {
        "page": 'import { Part } from "./part.js";\nif (data.part) new Part();\n',
        "part": 'import { deep } from "./deep.js";\n',
        "deep": "",
    }
    assert bundle(modules, "page", left_out=["part"]) == "if (data.part) new Part();\n"


def test_imports_without_names_are_refused() -> None:
    for line in ('import * as all from "./a.js";', 'import a from "./a.js";', "export default 1;"):
        with pytest.raises(ValueError, match="expected imports and exports by name"):
            bundle({"page": line, "a": ""}, "page")


def test_name_declared_by_two_modules_is_refused() -> None:
    modules = {"page": 'import "./a.js";\nconst [ONE, TWO] = [1, 2];\n', "a": "const TWO = 2;\n"}
    with pytest.raises(ValueError, match=r"page\.js: TWO is declared in a\.js too"):
        bundle(modules, "page")


def test_every_asset_declares_names_of_its_own() -> None:
    names = [path.stem for path in FOLDER.glob("*/assets/*.js")]
    code = script(sorted(set(names) - {"begin", "lab_begin"}))
    assert len(names) == len(set(names))
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE)
