"""The examples of CONTRIBUTING.md work as they are printed."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.decoding.helpers import MASK, ContextDenoiser, decode, make_canvas, make_process

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    """The only code block of a language."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return block


def test_router_decodes_and_records_its_arguments() -> None:
    names: dict[str, Any] = {}
    exec(compile(example("python"), "CONTRIBUTING.md", "exec"), names)
    router = names["Margin"](power=2.0)
    process = make_process("absorbing", steps=6)
    decoded, recorder = decode(router, process, ContextDenoiser(process, 5), make_canvas([5, 3]), steps=4)
    assert len(recorder) == 4
    assert not (decoded.tokens == MASK).any()
    assert router.describe()["power"] == 2.0


def test_config_file_names_the_arguments_of_the_router() -> None:
    config = yaml.safe_load(example("yaml"))
    assert config["transition"]["_target_"].endswith(".Margin")
    names: dict[str, Any] = {}
    exec(compile(example("python"), "CONTRIBUTING.md", "exec"), names)
    arguments = {key: value for key, value in config["transition"].items() if key != "_target_"}
    described = names["Margin"](**arguments).describe()
    assert {key: described[key] for key in arguments} == arguments
    assert config["defaults"] == ["_base"]
