"""The W&B dashboard of a sweep that was trained and evaluated offline."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb_workspaces.reports.v2.interface import Report
from wandb_workspaces.reports.v2.internal import ReportViewspec
from wandb_workspaces.workspaces import Workspace
from wandb_workspaces.workspaces.internal import View

from rdm.app.training_runs import run_name
from rdm.dashboard.__main__ import main
from rdm.dashboard.logged import LoggedSweep, LoggedTraining, read_sweep
from rdm.dashboard.views import build_report, build_workspace, specification
from rdm.errors import UserError
from tests.scripts import script
from tests.test_end_to_end import SMALL
from tests.wandb_files import OfflineRun, read_offline_run

pytestmark = pytest.mark.slow  # a sweep with W&B comes first


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings that differ in a choice, and an evaluation of each."""
    folder = tmp_path_factory.mktemp("dashboard") / "sweep"
    choices = ["reweighting=linear,constant", "logger=wandb", "trainer.max_steps=3"]
    script("train.py", "-m", *SMALL, *choices, f"hydra.sweep.dir={folder}")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2", "limit=2", "logger=wandb", f"hydra.sweep.dir={folder}")
    return folder


@pytest.fixture(scope="module")
def offline_runs(sweep: Path) -> list[OfflineRun]:
    return [read_offline_run(folder) for folder in sorted(sweep.rglob("offline-run-*"))]


@pytest.fixture(scope="module")
def saved(sweep: Path) -> dict[str, Any]:
    """The specification that the module writes."""
    file = sweep.parent / "dashboard.json"
    done = script("-m", "rdm.dashboard", str(sweep), "entity=me", "project=rdm", f"save={file}")
    assert done.stdout == f"wrote {file}\n"
    return json.loads(file.read_text())


def panels(node: Any) -> Iterator[dict[str, Any]]:
    """All panels of a specification."""
    if isinstance(node, dict) and "viewType" in node:
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from panels(child)


def referred_keys(panel: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The logged keys and the dotted config keys that a panel refers to."""
    config = panel["config"]
    if panel["viewType"] == "Weave":
        return {config["panel2Config"]["exp"]["fromOp"]["inputs"]["key"]["val"]}, set()
    axes = [config[axis] for axis in ("xAxis", "yAxis") if axis in config]
    logged = {*config.get("metrics", ()), *config.get("mediaKeys", ())}
    logged |= {axis.removeprefix("summary:") for axis in axes if not axis.startswith("config:")}
    configured = {axis.removeprefix("config:") for axis in axes if axis.startswith("config:")}
    if "groupBy" in config and config["groupBy"] != "group":
        configured.add(config["groupBy"])
    return logged, configured


def has_config(run: OfflineRun, key: str) -> bool:
    """Whether a run logged ``name.value.rest`` (W&B keeps the value of ``name`` below ``value``)."""
    name, _, rest = key.partition(".value")
    node = run.config.get(name)
    for part in filter(None, rest.split(".")):
        node = node.get(part) if isinstance(node, dict) else None
    return node is not None


def test_panels_refer_to_keys_that_the_runs_logged(saved: dict[str, Any], offline_runs: list[OfflineRun]) -> None:
    """Metric and config key of a panel are in the file of one and the same run."""
    assert len(offline_runs) == 4
    for view in ("workspace", "report"):
        found = list(panels(saved[view]))
        kinds = {panel["viewType"] for panel in found}
        assert kinds == {"Bar Chart", "Scatter Plot", "Run History Line Plot", "Weave", "Media Browser"}
        for panel in found:
            logged, configured = referred_keys(panel)
            assert logged
            matching = [
                run for run in offline_runs if logged <= run.keys and all(has_config(run, key) for key in configured)
            ]
            assert len(matching) == 2, panel


def test_panels_of_an_ablation(saved: dict[str, Any]) -> None:
    """One bar chart per ablated choice, in the form in which W&B stores it."""
    (choice,), (iterations,) = (
        [panel["config"] for panel in panels(saved["workspace"]) if panel["viewType"] == kind]
        for kind in ("Bar Chart", "Scatter Plot")
    )
    assert choice == {
        "chartTitle": "test/sacrebleu by reweighting",
        "metrics": ["test/sacrebleu"],
        "groupBy": "choices.value.reweighting",
        "vertical": True,
        "groupAgg": "mean",
        "groupArea": "stddev",
        "aggregate": True,
    }
    assert (iterations["xAxis"], iterations["yAxis"]) == ("config:steps.value", "summary:test/sacrebleu")


def test_values_of_trainings_are_compared_at_validation(tmp_path: Path) -> None:
    """Result rows have no such key; the seed and what is equal in all runs are no ablation."""
    sections: dict[str, Any] = {key: {} for key in ("name", "data", "vocab", "system", "decoding", "trainer")}
    for rate in (0.1, 0.2):
        run = tmp_path / str(rate)
        run.mkdir()
        config = {
            **sections,
            "seed": rate,
            "optimizer": {"lr": rate},
            "choices": {"model": "tiny", "name": f"run {rate}"},
        }
        (run / "config.yaml").write_text(json.dumps(config))
        overrides = ["model=tiny", f"optimizer.lr={rate}", f"seed={rate}", "resume=auto"]
        (run / "versions.json").write_text(json.dumps({"overrides": overrides}))
        (run / "wandb_id").write_text(f"id{rate}")
    sweep = read_sweep([tmp_path])
    assert [(training.id, training.name) for training in sweep.trainings] == [
        ("id0.1", "run 0.1"),
        ("id0.2", "run 0.2"),
    ]
    assert sweep.ablated == ["optimizer.lr"]
    (section, _) = build_workspace(sweep, "e", "p").sections
    (bars,) = (panel._to_model().model_dump(by_alias=True)["config"] for panel in section.panels)
    assert (bars["metrics"], bars["groupBy"]) == (["val/bleu"], "optimizer.value.lr")


def test_runs_are_filtered_and_grouped(saved: dict[str, Any], sweep: Path) -> None:
    ids = {folder.name.rpartition("-")[2] for folder in sweep.rglob("offline-run-*")}
    grids = [block for block in saved["report"]["spec"]["blocks"] if block["type"] == "panel-grid"]
    run_sets = [each for grid in grids for each in grid["metadata"]["runSets"]]
    for run_set in [*saved["workspace"]["spec"]["section"]["runSets"], *run_sets]:
        (condition,) = run_set["filters"]["filters"]
        assert (condition["key"], condition["op"]) == ({"section": "run", "name": "name"}, "IN")
        assert set(condition["value"]) == ids
        assert [key["name"] for key in run_set["grouping"]] == ["jobType", "group"]


def test_report_links_the_last_decoding_page_of_each_training(saved: dict[str, Any], sweep: Path) -> None:
    (links,) = [block for block in saved["report"]["spec"]["blocks"] if block["type"] == "list"]
    items = [item["children"][0]["children"][0] for item in links["children"]]
    assert len(items) == 2
    for item in items:
        run, _, file = item["url"].split("/me/rdm/runs/")[1].partition("/files/")
        assert file.startswith("media/html/decoding_")
        (page,) = sweep.glob(f"*/wandb/offline-run-*-{run}/files/{file}")
        weight = item["children"][0]["text"].split()[1]
        assert weight in json.loads((page.parents[5] / "versions.json").read_text())["overrides"]


def test_runs_have_readable_names_and_a_seed_tag(offline_runs: list[OfflineRun]) -> None:
    """System, choices and seed; for evaluations also the decoding. W&B allows 128 characters."""
    for weight in ("linear", "constant"):
        names = {run.job_type: run.name for run in offline_runs if f"reweighting:{weight}" in run.tags}
        assert names["train"].startswith(f"rdm_absorbing reweighting={weight} data.corpus.train_size=200")
        assert names["train"].endswith("... seed=1")
        assert names["evaluate"] == f"{names['train']}: rdm, 2 iterations"
        assert max(map(len, names.values())) <= 128
    assert all("seed:1" in run.tags for run in offline_runs)


def test_names_leave_out_how_a_run_is_carried_out() -> None:
    overrides = ["model.dim=8", "diffusion/pairing=single", "+trainer.x=1", "trainer=gpu", "logger=wandb", "seed=3"]
    assert run_name("ar", overrides, 3) == "ar diffusion/pairing=single model.dim=8 seed=3"
    assert run_name("ar", ["data.root=x", "data=qqp", "data.rooted=1"], 1) == "ar data=qqp data.rooted=1 seed=1"


def test_specification_is_what_the_package_reads_back(saved: dict[str, Any]) -> None:
    """The models of wandb-workspaces, which describe what W&B stores, accept it and lose nothing."""
    workspace = Workspace._from_model(View.model_validate(saved["workspace"]))
    report = Report._from_model(ReportViewspec.model_validate(saved["report"]))
    again = json.loads(specification(workspace, report))
    for view in ("workspace", "report"):
        before, after = (
            [(panel["viewType"], panel["config"]) for panel in panels(spec[view])] for spec in (saved, again)
        )
        assert before == after
    assert (workspace.entity, workspace.project, workspace.name) == ("me", "rdm", "sweep")
    assert [section.name for section in workspace.sections] == [
        "Ablation",
        "Quality against iterations",
        "Learning curves",
        "Samples",
    ]


def test_mistakes_are_explained_in_one_line(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(sweep)
    for arguments, message in (
        ([folder, "entity=me"], "project=... missing: name the W&B user or team, and the project of the runs"),
        ([folder, "entity=me", "projct=x"], "projct: no such key; give run or sweep folders and entity=..., project="),
        ([folder, "entity=me", "project="], "project: a value is needed"),
        (["entity=me", "project=x"], "name the folder of a sweep"),
        ([f"{folder}x", "entity=me", "project=x"], f"{folder}x does not exist; give"),
        ([str(tmp_path), "entity=me", "project=x"], f"{tmp_path}: no W&B runs; add logger=wandb to train.py"),
    ):
        monkeypatch.setattr("sys.argv", ["rdm.dashboard", *arguments])
        with pytest.raises(UserError) as refused:
            main()
        assert str(refused.value).startswith(message)
    for arguments, message in (
        ([folder], "entity=... project=... missing: name the W&B user or team, and the project of the runs"),
        (
            [folder, "entity=me", "project=x"],
            "W&B has no API key: run wandb login, or write a file with save=<file.json>",
        ),
    ):
        assert script("-m", "rdm.dashboard", *arguments, code=2).stderr == f"error: {message}\n"


def test_empty_sections_are_left_out() -> None:
    """A single training without samples has learning curves only."""
    training = LoggedTraining("abc", "a run", pages=[], has_samples=False)
    sweep = LoggedSweep("s", [training], [], ["val/loss"], ablated=[], compared=[], score=None, iterates=False)
    assert [section.name for section in build_workspace(sweep, "e", "p").sections] == ["Learning curves"]
    spec = json.loads(specification(build_workspace(sweep, "e", "p"), build_report(sweep, "e", "p")))
    assert not [block for block in spec["report"]["spec"]["blocks"] if block["type"] == "list"]
