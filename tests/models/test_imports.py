"""Dependencies point one way: mathematics and networks do not import the layers above them."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "rdm"
FILES = [
    PACKAGE / "cross_entropy.py",
    PACKAGE / "terms.py",
    *PACKAGE.glob("diffusion/*.py"),
    *PACKAGE.glob("models/*.py"),
]
ABOVE = ("decoding", "systems", "training", "evaluation", "data", "app", "plan")


def imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_import_of_a_higher_layer(file: Path) -> None:
    names = imported(file)
    assert not [name for name in names if name.startswith(tuple(f"rdm.{layer}" for layer in ABOVE))]
    assert not [name for name in names if "fake_tensor" in name]
    if file.parent.name != "diffusion":
        assert not [name for name in names if name.startswith("rdm.diffusion")]
    else:
        assert not [name for name in names if name.startswith("rdm.models")]
