"""The classes and files that the tutorials print work as they are printed, and their commands run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from rdm.app.choices import CONF
from tests.decoding.helpers import MASK, ContextDenoiser, decode, make_canvas, make_process
from tests.docs.following import follow, shell_lines, shortened
from tests.scripts import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"```{language}[^\n]*\n(.*?)```", (TUTORIALS / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )


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
    assert own["system"].keys() - {"unknown"} <= like["system"].keys()


def test_commands_to_follow_are_complete_and_short() -> None:
    page = (TUTORIALS / "own_data.md").read_text(encoding="utf-8")
    lines = shell_lines(shortened(page))
    assert [line for line in lines if "<" in line] == []
    (training,) = (line for line in lines if line.startswith("python train.py"))
    assert training.endswith("hydra.run.dir=outputs/mine")  # after a continued line
    assert "trainer.max_steps=4 " in training
    assert len(lines) > 7
    assert shell_lines("```sh\nmake setup\npython train.py ckpt=<run>\n```\n") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "quickstart",
        *(f"tutorials/{name}" for name in ("own_data", "ablation", "router", "system", "distil", "open_ended")),
    ],
)
def test_page_can_be_followed(page: str, tmp_path: Path) -> None:
    """With fewer steps and sentences; a page about the model of ``make demo`` is given one of four steps."""
    text = shortened((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    if "outputs/demo" in text:
        follow(shortened("```sh\npython train.py hydra.run.dir=outputs/demo\n```\n"), tmp_path)
    follow(text, tmp_path)
