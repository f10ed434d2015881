"""The baseline of mutation testing can be repeated: each of its mutations is found in the code."""

import json

import pytest

from benchmarks.mutants import RESULT, ROOT, Mutant, located, moved


@pytest.mark.long
def test_every_mutation_of_baseline_is_located_after_renames() -> None:
    mutants = [Mutant(**each) for each in json.loads(RESULT.read_text(encoding="utf-8"))]
    renames = RESULT.with_stem("mutants_renamed")
    renamed = json.loads(renames.read_text(encoding="utf-8"))
    assert len(mutants) == 150
    now = [found for mutant in mutants if (found := moved(mutant, renamed)) is not None]
    assert len(now) >= 135
    lost = [mutant for mutant in now if located(ROOT / mutant.file, mutant) is None]
    assert lost == [], f"add what was renamed to {renames.name}"
