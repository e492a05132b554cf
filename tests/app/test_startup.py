"""What is checked before torch and Lightning are imported, help and tab completion."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rdm.app.choices import choices, groups_of
from tests.scripts import ROOT, script

# Each command runs in a fork of one process; a child reports its exit code and the slow modules it has imported.
RUNNER = """
import json, os, runpy, sys
os.environ["COMP_LINE"] = "python train.py optimizer."
sys.path.insert(0, os.getcwd())
import hydra
for line in json.load(sys.stdin):
    read, write = os.pipe()
    if os.fork() == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        name, *arguments = line
        code = 0
        try:
            if name == "-m":
                sys.argv = arguments
                runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
            else:
                sys.argv = [name, *arguments]
                runpy.run_path(name, run_name="__main__")
        except SystemExit as exiting:
            code = exiting.code or 0
        except BaseException as error:
            code = repr(error)
        slow = [module for module in ("torch", "pytorch_lightning") if module in sys.modules]
        os.write(write, json.dumps([code, slow]).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    print(os.read(read, 1000).decode())
"""
RESULTS = next(str(file.relative_to(ROOT)) for file in sorted((ROOT / "results").rglob("*.jsonl")))
FAST: list[tuple[int, list[str]]] = [
    (0, ["train.py", "--help"]),
    (0, ["evaluate.py", "--help"]),
    (0, ["generate.py", "-h"]),
    (0, ["train.py", "--cfg", "job"]),
    (0, ["train.py", "-sc", "query=bash"]),
    (2, ["train.py", "optimiser=cosine"]),
    (2, ["train.py", "+optimiser=cosine"]),
    (2, ["train.py", "+data.foo=1"]),
    (2, ["train.py", "trainer.max_step=1"]),
    (2, ["train.py", "seed=abc"]),
    (2, ["train.py", "experiment=toy/absrbing"]),
    (2, ["train.py", "ckpt=nowhere"]),
    (2, ["train.py", "data=text_pairs", "data.source=de", "data.target=en", "data.root=nowhere"]),
    (2, ["evaluate.py"]),
    (2, ["evaluate.py", "ckpt=nowhere"]),
    (2, ["evaluate.py", "ckpt=rdm"]),
    (2, ["generate.py", "ckpt=nowhere", "text=a"]),
    (2, ["generate.py", "text=it's"]),
    (0, ["-m", "rdm.report", "--help"]),
    (2, ["-m", "rdm.report", "nowhere"]),
    (0, ["-m", "rdm.report", RESULTS, "--out", "{tmp}"]),
    (0, ["-m", "rdm.plan", "--help"]),
    (2, ["-m", "rdm.plan", "hardware=nothing"]),
    (0, ["-m", "rdm.data.inspect", "--help"]),
    (2, ["-m", "rdm.data.inspect", "data=nothing"]),
]


def test_commands_that_import_neither_torch_nor_lightning(tmp_path: Path) -> None:
    commands = [[part.replace("{tmp}", str(tmp_path)) for part in command] for _, command in FAST]
    runner = [sys.executable, "-c", RUNNER]
    done = subprocess.run(runner, input=json.dumps(commands), capture_output=True, text=True, cwd=ROOT, check=True)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(" ".join(command), *report) for command, report in zip(commands, reports, strict=True)]
    assert found == [(" ".join(command), code, []) for command, (code, _) in zip(commands, FAST, strict=True)]


def imported_by(code: str) -> set[str]:
    """The slow packages among those that a new process imports for ``code``."""
    slow = {"pytorch_lightning", "torchmetrics", "transformers", "datasets", "scipy", "sympy", "matplotlib", "pyarrow"}
    report = f"import sys; print(*sorted({slow} & sys.modules.keys()), 'torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {report}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *names, dynamo = done.stdout.split()
    return {*names, *(["torch._dynamo"] if dynamo == "True" else [])}


def test_decoding_imports_lightning_and_what_it_needs_only() -> None:
    deferred = "from rdm.training.deferred_torchmetrics import defer_torchmetrics; defer_torchmetrics()"
    code = f"{deferred}; import rdm.app.evaluate, rdm.app.generate, rdm.app.open_model"
    assert imported_by(code) == {"pytorch_lightning", "torchmetrics", "matplotlib", "torch._dynamo", "sympy"}


@cache
def help_of(name: str) -> str:
    return script(f"{name}.py", "--help").stdout


@pytest.mark.parametrize("name", ["train", "evaluate", "generate"])
def test_help_lists_the_groups_of_the_script_with_their_choices(name: str) -> None:
    lines = help_of(name).splitlines()
    groups = lines[lines.index("Groups (group=choice):") : lines.index("Keys (key=value):")]
    listed = [line.split()[0] for line in groups if line.startswith("  ") and not line.startswith("   ")]
    assert listed == list(groups_of(name))
    for group, meaning in groups_of(name).items():
        assert any(line.split(maxsplit=1) == [group, meaning] for line in groups if line.strip())
        assert set(choices(group)) <= set(" ".join(groups).split())
    assert "_base" not in " ".join(groups).split()
    assert f"python {name}.py" in lines[2]
    assert any(line.startswith("  ckpt: null") and "#" in line for line in lines)


def test_help_has_no_groups_of_other_scripts() -> None:
    assert "trainer" in groups_of("train")
    for group in ("trainer", "optimizer", "experiment", "callbacks", "hardware"):
        assert f"\n  {group} " not in help_of("generate")


def complete(line: str, name: str = "train.py") -> list[str]:
    return script(name, "-sc", "query=bash", environment={"COMP_LINE": f"python {name} {line}"}).stdout.split()


def test_completion() -> None:
    assert complete("experiment=toy/ab") == ["experiment=toy/absorbing"]
    assert complete("seed=2 experiment=") == [f"experiment={name}" for name in choices("experiment")]
    assert complete("experiment=toy_text/") == [
        f"experiment=toy_text/{name}" for name in ("absorbing", "any_order", "ar", "rdm_absorbing")
    ]
    assert complete("reweighting=") == ["reweighting=constant", "reweighting=linear", "reweighting=original"]
    assert complete("optimizer.l") == ["optimizer.lr="]
    assert "rdm_cond" in " ".join(complete("decoding=rdm_", "generate.py"))


def test_choices_close_to_a_wrong_name_come_first() -> None:
    line = script("train.py", "experiment=toy/absrbing", code=2).stderr
    assert "did you mean toy/absorbing?" in line
    listed = line.split("Available options in 'experiment': ")[1].split()
    assert listed[:2] == ["toy/absorbing", "toy/rdm_absorbing"]
    assert sorted(listed) == choices("experiment")


def test_former_names_work_with_a_notice() -> None:
    done = script("train.py", "--cfg", "job", "system.pairing={_target_:rdm.diffusion.copies.Single}")
    assert done.stderr == "notice: system.pairing is now called system.copies\n"
    assert "_target_: rdm.diffusion.copies.Single" in done.stdout
    done = script("train.py", "--cfg", "job", "logger=wandb", "logger.project=mine")
    assert done.stderr == "notice: logger.project is now called logger.wandb.project\n"
    assert "project: mine" in done.stdout
