"""Follows a page as a reader does: writes the files that it prints and runs its shell blocks in order."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.commands import BLOCK, PLACEHOLDER
from tests.scripts import ROOT

FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
SHORTER = {
    r"trainer\.max_steps=\d+": "trainer.max_steps=4",
    r"trainer\.val_check_interval=\d+": "trainer.val_check_interval=4",
    r"(?<![\w.])limit=\d+": "limit=4",
    r"data\.limit=\d+": "data.limit=40",
    r"train_size=[\d_]+": "train_size=200",
}
"""Numbers of a page and what replaces them in a quick test."""
QUICK_VALIDATION = "callbacks.sampling.sentences=2 +trainer.limit_val_batches=1"
"""Overrides of every training in a quick test: otherwise validation takes most of its time."""


def shell_lines(page: str) -> list[str]:
    """The commands to run: not those with placeholders, nor those that set up or activate an environment."""
    blocks = [block for block in BLOCK.findall(page) if not PLACEHOLDER.search(block)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if not line.startswith(("make ", "source "))]


def shortened(page: str) -> str:
    """The page with few training steps and few sentences in every command."""
    for number, few in SHORTER.items():
        page = re.sub(number, few, page)
    few_steps = "trainer.max_steps=4 trainer.val_check_interval=4"
    page = re.sub(r"^(python train\.py)((?:(?!max_steps|\\\n).)*)$", rf"\1 {few_steps}\2", page, flags=re.MULTILINE)
    page = re.sub(r"^python train\.py", rf"\g<0> {QUICK_VALIDATION}", page, flags=re.MULTILINE)
    return re.sub(r"^(python evaluate\.py)((?:(?!limit=).)*)$", r"\1 limit=4\2", page, flags=re.MULTILINE)


def follow(page: str, folder: Path) -> str:
    """Write the files of a page below a folder, run its commands there, and return what they print.

    A block ``python title="x.py"`` is the file ``x.py``. A command that fails ends in an AssertionError.
    """
    for name in ("train.py", "evaluate.py", "generate.py"):
        (folder / name).write_text((ROOT / name).read_text())
    for name, text in FILE.findall(page):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "PYTEST"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    script = "\n".join(shell_lines(page))
    done = subprocess.run(
        ["bash", "-ex", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout
