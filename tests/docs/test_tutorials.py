"""The classes and files that the tutorials print work as they are printed."""

import re
from typing import Any

import yaml
from omegaconf import OmegaConf

from rdm.app.choices import CONF
from tests.decoding.helpers import MASK, ContextDenoiser, decode, make_canvas, make_process
from tests.scripts import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (TUTORIALS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_router_decodes_and_is_configured() -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("router.md", "python")[0], "router.md", "exec"), names)
    (config,) = (yaml.safe_load(block) for block in blocks("router.md", "yaml"))
    arguments = {key: value for key, value in config["transition"].items() if key != "_target_"}
    router = names["LeftFirst"](**arguments)
    assert router.describe()["certain"] == arguments["certain"]
    process = make_process("absorbing", steps=6)
    decoded, recorder = decode(router, process, ContextDenoiser(process, 5), make_canvas([5, 3]), steps=4)
    assert len(recorder) == 4
    assert not (decoded.tokens == MASK).any()


def test_system_page_shows_the_file_of_cmlm() -> None:
    printed, own = (yaml.safe_load(re.sub(r"\$\{", "$ {", block)) for block in blocks("system.md", "yaml"))
    actual = yaml.safe_load((CONF / "diffusion" / "cmlm.yaml").read_text(encoding="utf-8"))
    assert printed == actual
    like = OmegaConf.to_container(OmegaConf.load(CONF / "system" / "ar.yaml"))
    assert isinstance(like, dict)
    assert own["defaults"] == like["defaults"]
    assert set(own["system"]) <= set(like["system"])
