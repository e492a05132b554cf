"""Learning curves, through the scripts and from files made up here."""

import re
from pathlib import Path

import pytest

from rdm.app.training_runs import label_runs
from rdm.errors import UserError
from rdm.evaluation.curves import TrainingRun, draw_curves, final_values_table, read_curves
from rdm.evaluation.figures import draw_figures, widen_single_values
from tests.evaluation.helpers import make_row
from tests.scripts import script
from tests.test_end_to_end import SMALL


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A sweep of two trainings, and what it printed."""
    folder = tmp_path_factory.mktemp("curves") / "sweep"
    done = script("train.py", "-m", *SMALL, "reweighting=linear,constant", f"hydra.sweep.dir={folder}")
    return folder, done.stdout


def test_training_sweep_ends_with_its_table_and_the_next_command(sweep: tuple[Path, str]) -> None:
    folder, printed = sweep
    table, last = printed.rsplit("┏", 1)[1], printed.splitlines()[-2:]
    for text in ("run", "val/loss", "val/bleu", "│ reweighting=linear", "│ reweighting=constant"):
        assert text in table
    assert "max_steps" not in table  # the same in both jobs
    assert last == [f"learning curves: python -m rdm.report {folder}", f"done: python evaluate.py ckpt={folder}"]


def test_report_of_runs_without_results_has_the_curves(sweep: tuple[Path, str], tmp_path: Path) -> None:
    """One figure per metric with one line per run, for a sweep and for a single run."""
    folder, _ = sweep
    done = script("-m", "rdm.report", str(folder), f"--out={tmp_path}")
    names = {file.name for file in tmp_path.iterdir()}
    assert {"curve_train_loss.png", "curve_val_loss.svg", "curve_val_bleu.png", "report.md"} <= names
    assert any(name.startswith("curve_train_lr") for name in names)
    assert not {"report.tex", "iterations.png"} & names
    page = (tmp_path / "report.md").read_text()
    assert "![curve_val_loss](curve_val_loss.png)" in page
    assert "| reweighting=linear | " in page
    assert "reweighting=constant" in done.stdout
    assert "reweighting=constant" in (tmp_path / "curve_val_loss.svg").read_text().replace("&#61;", "=")
    run = next(folder.glob("*/metrics.csv")).parent
    script("-m", "rdm.report", str(run))
    assert f"| {run.name} | " in (run / "report.md").read_text()


def test_report_has_results_and_curves(sweep: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = sweep
    run = next(folder.glob("*/metrics.csv")).parent
    script("evaluate.py", f"ckpt={run}", "limit=2", "decoding.steps=2", f"results={tmp_path / 'results.jsonl'}")
    script("-m", "rdm.report", str(tmp_path), str(folder))
    page = (tmp_path / "report.md").read_text()
    assert page.index("## sacrebleu") < page.index("## Training") < page.index("## Learning curves")
    assert (tmp_path / "iterations.png").is_file()


def test_metric_without_results_is_refused(sweep: tuple[Path, str]) -> None:
    refused = script("-m", "rdm.report", str(sweep[0]), "--metric=chrf", code=2).stderr
    assert refused == f"error: --metric chrf: no results below {sweep[0]}; run evaluate.py first\n"


def test_curves_are_read_with_their_steps(tmp_path: Path) -> None:
    """Empty cells and values that are not finite are no points."""
    file = tmp_path / "metrics.csv"
    file.write_text("epoch,lr-AdamW,step,train/loss,val/loss\n,0.1,0,,\n0,,1,3.5,\n0,,1,,nan\n0,,3,3.0,2.5\n")
    curves = read_curves(file)
    assert curves == {"lr-AdamW": [(1, 0.1)], "train/loss": [(2, 3.5), (4, 3.0)], "val/loss": [(4, 2.5)]}
    assert final_values_table([TrainingRun("a", curves), TrainingRun("b", {})]) == (
        ["run", "step", "val/loss"],
        [["a", "4", "2.5"], ["b", "", ""]],
    )
    for broken in ("step,x\n1,word\n", "x\n1\n", "step,x\n,1\n", "step,x\n1,2,3\n"):
        file.write_text(broken)
        with pytest.raises(UserError, match=r"metrics.csv, line 2 is not a row of training metrics"):
            read_curves(file)


def test_curves_are_reproducible_to_the_byte(tmp_path: Path) -> None:
    """Metrics that say nothing about learning are not drawn."""
    points = [(step, 1 / (step + 1)) for step in range(5)]
    runs = [TrainingRun("a", {"train/loss": points, "train/target_tokens": points}), TrainingRun("b", {"lr": points})]
    first, second = ([file.read_bytes() for file in draw_curves(runs, tmp_path)] for _ in range(2))
    assert first == second
    names = {"curve_train_loss.png", "curve_train_loss.svg", "curve_lr.png", "curve_lr.svg"}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_labels_are_the_overrides_that_differ() -> None:
    runs = [["a=1", "seed=1", "resume=auto"], ["a=1", "seed=2"], ["a=1", "seed=2", "b=x"]]
    assert label_runs(runs) == ["seed=1", "seed=2", "seed=2 b=x"]
    assert label_runs([["a=1"]]) == [""]
    assert label_runs([]) == []


def test_axes_of_a_single_point() -> None:
    """The point is in the middle of readable limits; axes with several values keep Matplotlib's limits."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([10], [20], "o-")
    widen_single_values(axes)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 20), (0, 40))
    axes.set_xscale("log")
    widen_single_values(axes)
    assert axes.get_xlim() == (1, 100)
    axes.plot([30], [20], "o-")
    before = axes.get_xlim()
    widen_single_values(axes)
    assert axes.get_xlim() == before
    pyplot.close(figure)
    for value in (0.0, -3.0):
        figure, axes = pyplot.subplots()
        axes.plot([1], [value], "o-")
        widen_single_values(axes)
        assert axes.get_ylim() == ((-1, 1) if value == 0 else (-6, 0))
        pyplot.close(figure)


def test_figures_of_one_row(tmp_path: Path) -> None:
    """A horizontal line across the axes is no point of the x axis."""
    draw_figures([make_row("rdm", 10, 20)], "sacrebleu", tmp_path)
    ticks = re.findall("<!-- ([0-9.]+) -->", (tmp_path / "iterations.svg").read_text())  # comments of Matplotlib
    assert ticks[:5] == ["0", "5", "10", "15", "20"]
    draw_figures([make_row("greedy", None, 20)], "sacrebleu", tmp_path)
