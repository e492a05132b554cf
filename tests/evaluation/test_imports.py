"""Reports and comparisons start quickly: what they import needs neither torch nor Hydra."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["rdm.evaluation.report", "rdm.evaluation.hypotheses", "rdm.evaluation.settings"])
def test_heavy_packages_are_not_imported(module: str) -> None:
    code = f"import sys, {module}; print(sorted(sys.modules.keys() & {{'torch', 'hydra', 'omegaconf'}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
