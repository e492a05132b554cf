"""Nothing in a configuration from elsewhere, a checkpoint or a data set is executed, unless the user trusts it."""

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from omegaconf import OmegaConf

import rdm
from rdm.app.arguments import resume_overrides
from rdm.app.targets import find_target
from rdm.app.trust import check_foreign, check_name
from rdm.errors import UserError
from tests.configs import CONF, choices, config
from tests.scripts import ROOT, script
from tests.test_end_to_end import SMALL

SOURCES = sorted([*ROOT.glob("*.py"), *(ROOT / "rdm").rglob("*.py"), *(ROOT / "scripts").glob("*.py")])
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
UNSAFE_METHODS = {"register_new_resolver", "unsafe_load", "full_load"}
# Modules that build objects from configurations of the repository, or that have been checked by their caller.
CHECKED_BY_CALLER = {"rdm/bench/cases.py", "rdm/plan/estimate.py", "scripts/optimizer_cost.py"}
# The only resolver of the package: it names the folder of a job.
KNOWN = {"rdm/app/composition.py": ["calls OmegaConf.register_new_resolver"]}
UNSAFE_KEYWORDS = {"shell", "trust_remote_code", "allow_pickle"}


def called(node: ast.Call) -> str:
    """The source text of the function that is called."""
    return ast.unparse(node.func)


def faults(source: str) -> Iterator[str]:
    """Everything in a source file that could execute what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            yield from (f"imports {name}" for name in names if name.split(".")[0] in UNSAFE_MODULES)
        if not isinstance(node, ast.Call):
            continue
        name, keywords = called(node), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        last = name.rpartition(".")[2]
        if name in UNSAFE_CALLS or last in UNSAFE_METHODS:
            yield f"calls {name}"
        if name == "yaml.load" or (name == "torch.load" and keywords.get("weights_only") != "True"):
            yield f"calls {name}"
        if "ckpt_path" in keywords and keywords.get("weights_only") != "True":
            yield f"calls {name} without weights_only"
        yield from (f"passes {key}" for key in UNSAFE_KEYWORDS & keywords.keys() if keywords[str(key)] != "False")


def test_nothing_that_is_read_is_executed() -> None:
    assert len(SOURCES) > 80
    found = {str(file.relative_to(ROOT)): list(faults(file.read_text())) for file in SOURCES}
    assert {file: list_ for file, list_ in found.items() if list_} == KNOWN


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "yaml.load(text)",
        "yaml.unsafe_load(text)",
        "eval(text)",
        "exec(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "OmegaConf.register_new_resolver('eval', print)",
        "load_dataset(name, trust_remote_code=True)",
        "trainer.fit(module, ckpt_path=file)",
    ],
)
def test_search_finds_unsafe_code(line: str) -> None:
    assert list(faults(line))


def test_only_checked_configurations_are_built() -> None:
    """``instantiate`` is called on configurations that have been checked, or that are part of the repository."""
    users = {str(file.relative_to(ROOT)) for file in SOURCES if "instantiate(" in file.read_text()}
    checking = {"rdm/app/train.py": "check_training(config)"}
    checking |= dict.fromkeys(
        ["rdm/app/evaluate.py", "rdm/data/inspect.py", "rdm/plan/__main__.py"], "check_types(config"
    )
    assert users | {"rdm/plan/__main__.py"} == {"rdm/app/targets.py", *CHECKED_BY_CALLER, *checking}
    for name, check in checking.items():
        nodes = {getattr(node, "name", ""): ast.unparse(node) for node in ast.parse((ROOT / name).read_text()).body}
        (text,) = (text for text in nodes.values() if check in text)  # job or main
        before, _, _ = text.partition(check)
        assert not any(call in before for call in ("instantiate(", "fit(", "make_plan(")), name


def test_configurations_have_no_code() -> None:
    """Interpolations only point; all resolvers but one are Hydra's own. Every target is one that may be built."""
    for file in CONF.rglob("*.yaml"):
        text = file.read_text()
        assert set(re.findall(r"\$\{([\w.]+):", text)) <= {"hydra", "now", "oc.select", "job_folder"}, file
        # conf/system/diffusion.yaml takes its denoiser from the diffusion by name.
        named = re.findall(r"_target_: (\S+)", text) + re.findall(r"^denoiser: (\S+)", text, flags=re.MULTILINE)
        assert "${" not in "".join(named).replace("${diffusion.denoiser}", "")
        for target in set(named) - {"${diffusion.denoiser}"}:
            check_name(target, str(file))
            find_target(target, str(file))


TARGETS = [
    "os.system",
    "subprocess.run",
    "builtins.eval",
    "rdm.app.run_folder.subprocess.run",
    "rdm.evaluation.results.append",
    "rdm.data.module.torch.load",
    "torch.load",
    "torch.hub.load",
    "hydra.utils.instantiate",
    "pathlib.Path",
    "rdm.systems.base.nn.Linear",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", ["{}", "{{vocab: {}}}", "{{vocab: [{}]}}", "{{_args_: [{}]}}", "{{_hidden: {}}}"])
def test_targets_outside_the_package_are_refused(target: str, place: str) -> None:
    """At any place in the configuration of a run: without importing them, or where only the import can tell."""
    evil = f"{{_target_: {target}, command: false, args: false}}"
    node = OmegaConf.create(yaml.safe_load(f"system: {place.format(evil)}"))
    with pytest.raises(UserError, match="is not a class of this package"):
        find_target(target, "_target_") if check_foreign(node, "config.yaml") else None


INTERPOLATIONS = [
    "${oc.create:'{_target_: os.system}'}",
    "${oc.decode:${oc.env:X}}",
    "${ oc.decode : ${oc.env:X}}",
    "${${a}}",
    "${oc.select:${a}}",
    "${job_folder:a,b,c}",
]


@pytest.mark.parametrize("value", INTERPOLATIONS)
def test_interpolations_that_could_assemble_a_name_are_refused(value: str) -> None:
    with pytest.raises(UserError, match="may not be used in the configuration of a trained model"):
        check_foreign(OmegaConf.create({"a": [{"b": value}]}), "config.yaml")
    with pytest.raises(UserError, match="is not a class of this package"):
        check_foreign(OmegaConf.create({"a": "os.system", "b": {"_target_": "${a}"}}), "config.yaml")


def test_modules_of_refused_targets_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a module executes it."""
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Trap: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for node in ({"_target_": "trap.Trap"}, {"_target_": "rdm.vocab.Vocab", "size": {"_target_": "trap.Trap"}}):
        with pytest.raises(UserError, match=r"trap\.Trap is not a class of this package; add trust=trap"):
            check_foreign(OmegaConf.create(node), "config.yaml")
        with pytest.raises(UserError, match=r"trap\.Trap is not a class of this package; add trust=trap"):
            check_foreign(OmegaConf.create(node), "config.yaml", trust=["tra", "trap.py"])
        assert check_foreign(OmegaConf.create(node), "config.yaml", trust=["trap"])
    assert not (tmp_path / "ran").exists()


class Evil:
    """Executes a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {self.marker}",)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("security") / "run"
    script("train.py", *SMALL, f"hydra.run.dir={folder}")
    return folder


@pytest.mark.parametrize("section", ["system", "decoding", "data.module", "data.metrics.sacrebleu"])
def test_code_in_the_configuration_of_a_run(section: str, run: Path, tmp_path: Path) -> None:
    """It is refused in one line, wherever it is."""
    folder, marker = tmp_path / "run", tmp_path / "ran"
    shutil.copytree(run, folder)
    trap = {"_target_": "os.system", "command": f"touch {marker}"}
    changed = OmegaConf.load(folder / "config.yaml")
    OmegaConf.update(changed, section, trap, merge=False)
    OmegaConf.save(changed, folder / "config.yaml")
    done = script("evaluate.py", f"ckpt={folder}", "limit=2", "decoding.steps=2", code=2)
    assert f"{section}._target_: os.system is not a class of this package; add trust=os" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not marker.exists()


def test_code_in_an_exported_folder(run: Path, tmp_path: Path) -> None:
    """Neither the configuration nor a pickle in the place of the weights is executed."""
    marker, folder = tmp_path / "ran", rdm.load(run).export(tmp_path / "exported")
    config_file, weights = folder / "config.yaml", folder / "model.safetensors"
    saved = config_file.read_text()
    for section in ("system", "decoding", "data.module"):
        changed = OmegaConf.create(saved)
        OmegaConf.update(changed, section, {"_target_": "os.system", "command": f"touch {marker}"}, merge=False)
        OmegaConf.save(changed, config_file)
        with pytest.raises(UserError, match=r"os\.system is not a class of this package"):
            rdm.load(folder)
    done = script("generate.py", f"ckpt={folder}", "text=x", code=2)
    assert "os.system is not a class of this package" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    config_file.write_text(saved)
    torch.save({"state_dict": {}, "evil": Evil(marker)}, weights)
    with pytest.raises(UserError, match="is not a readable safetensors file"):
        rdm.load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["evaluate.py", "generate.py", "train.py"])
def test_code_in_a_checkpoint(name: str, run: Path, tmp_path: Path) -> None:
    folder, marker = tmp_path / "run", tmp_path / "ran"
    shutil.copytree(run, folder)
    for file in (folder / "checkpoints").glob("*.ckpt"):
        torch.save({"state_dict": {}, "global_step": 1, "evil": Evil(marker)}, file)
    ckpt = f"ckpt={folder / 'checkpoints' / 'last.ckpt'}"
    training = [*SMALL, f"hydra.run.dir={tmp_path / 'second'}"] if name == "train.py" else []
    script(name, ckpt, *training, code=2)
    assert not marker.exists()


def test_wandb_key_is_not_written_to_the_run_folder(tmp_path: Path) -> None:
    key = "5ec12e7" + "0123456789abcdef" * 2 + "0"
    folder = tmp_path / "run"
    script(
        "train.py",
        *SMALL,
        "trainer.max_steps=3",
        "logger=wandb",
        "+logger.wandb.offline=true",
        f"hydra.run.dir={folder}",
        environment={"WANDB_API_KEY": key},
    )
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".wandb" for file in files)
    assert not [file for file in files if key.encode() in file.read_bytes()]


@pytest.mark.parametrize("name", choices("data"))
def test_only_the_configured_data_set_is_requested_from_the_hub(name: str) -> None:
    """User files and generated text request nothing; other data sets request only themselves."""
    ends = ["data.source=a", "data.target=b"] if name == "text_pairs" else []
    text = OmegaConf.to_yaml(config(f"data={name}", *ends).data, resolve=True)
    own = name.startswith("toy_") or name in ("text_pairs", "jsonl_pairs", "plain_text")
    assert not own or "rdm.data.hub" not in text
    hubs = len(re.findall(r"_target_: rdm\.data\.hub\.Hub\b", text))
    assert len(re.findall(r"path: \w\S+", text)) >= hubs
    assert config().data.name == "toy_translation"


def test_recorded_overrides_cannot_change_hydra(tmp_path: Path) -> None:
    words = ["model.dim=64", "hydra.callbacks.x._target_=os.system", "+hydra.callbacks.y=1", "~hydra/launcher"]
    (tmp_path / "versions.json").write_text(json.dumps({"overrides": words}))
    assert resume_overrides([f"ckpt={tmp_path}"]) == ["model.dim=64", f"ckpt={tmp_path}"]


RECORDED = [
    "+callbacks.x._target_=os.system",
    "+callbacks={x:{_target_:os.system,command:ls}}",
    "+callbacks={x:{'_target_': 'os.system'}}",
    "+callbacks.x=${oc.create:'{_target_: os.system}'}",
    "+callbacks.x={_target_:}",
]


@pytest.mark.parametrize("override", RECORDED)
def test_recorded_overrides_cannot_name_foreign_code(override: str, tmp_path: Path) -> None:
    """``train.py ckpt=<run>`` composes its configuration from overrides that are recorded in the run folder."""
    (tmp_path / "versions.json").write_text(json.dumps({"overrides": [override]}))
    with pytest.raises(UserError, match=r"versions\.json: "):
        resume_overrides([f"ckpt={tmp_path}", "trust=other"])
    if "_target_=os.system" in override:
        assert override in resume_overrides([f"ckpt={tmp_path}", "trust=os"])
