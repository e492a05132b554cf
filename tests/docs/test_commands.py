"""Every command of README.md and of the documentation names what exists: targets, modules, files, groups and keys."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from rdm.app.composition import compose_config
from tests.docs.commands import CONFIGS, commands, composed, owned_pages, python_commands
from tests.docs.following import FILE
from tests.scripts import ROOT

PAGES = {str(file.relative_to(ROOT)): file for file in owned_pages()}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
NAMED = re.compile(r"`(?:python )?((?:conf|docs|examples|rdm|scripts|tests)/[\w/]+\.(?:py|yaml|md|ipynb))\b")
"""Files of the repository that a sentence names."""


@pytest.fixture(scope="module")
def composed_before() -> set[tuple[str, ...]]:
    return set()


@pytest.mark.parametrize("page", PAGES)
def test_configurations_compose(page: str, composed_before: set[tuple[str, ...]]) -> None:
    """Config groups, choices and keys exist; a folder of the reader's own (--config-dir) is not there."""
    failed = []
    for name, arguments in python_commands(PAGES[page]):
        if name not in CONFIGS or any(word.startswith("--config-dir") for word in arguments):
            continue
        for overrides in composed(arguments):
            known = (CONFIGS[name], *overrides)
            if known in composed_before:
                continue
            composed_before.add(known)
            try:
                compose_config(CONFIGS[name], overrides)
            except HydraException as error:
                failed.append(f"{name} {' '.join(overrides)}: {error}")
    assert not failed


@pytest.mark.parametrize("page", PAGES)
def test_modules_scripts_and_targets_exist(page: str) -> None:
    """In the repository, or printed on the page."""
    printed = dict(FILE.findall(PAGES[page].read_text(encoding="utf-8")))
    for name, _ in python_commands(PAGES[page]):
        exists = name in printed or (ROOT / name).is_file() if name.endswith(".py") else find_spec(name) is not None
        assert exists, f"{page}: {name}"
    for words in commands(PAGES[page]):
        if words[0] == "make":
            assert words[1] in TARGETS, f"{page}: {' '.join(words)}"
    for name in NAMED.findall(PAGES[page].read_text(encoding="utf-8")):
        assert name in printed or (ROOT / name).exists(), f"{page}: {name}"


def test_a_command_with_a_wrong_word_is_found(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("```sh\npython train.py -m diffusion=rdm_absorbing,nothing seed=1  # comment\n```\n")
    ((name, arguments),) = python_commands(file)
    assert composed(arguments) == [["diffusion=rdm_absorbing", "seed=1"], ["diffusion=nothing", "seed=1"]]
    assert OmegaConf.select(compose_config(CONFIGS[name], composed(arguments)[0]), "seed") == 1
    with pytest.raises(HydraException):
        compose_config(CONFIGS[name], composed(arguments)[1])
