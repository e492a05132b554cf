"""The W&B workspace and report of a sweep, as objects of the package ``wandb-workspaces``."""

import json
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from rdm.dashboard.logged import LoggedSweep

STEP = "trainer/global_step"
"""The training step, which Lightning logs with every metric."""
SAMPLES, PAGE = "samples", "decoding"
"""Keys of the table of samples and of the decoding page, see :mod:`rdm.training.sampling`."""

Panels = list[Any]


def ablation_bars(sweep: LoggedSweep) -> Panels:
    """One bar chart per ablated choice: mean and standard deviation over seeds.

    Evaluations are compared where they record the choice, trainings otherwise.
    """
    charts = [(key, sweep.score) for key in sweep.compared]
    trained = [key for key in sweep.ablated if key not in sweep.compared]
    charts += [(key, sweep.trained_metric) for key in trained]
    return [
        wr.BarPlot(
            title=f"{metric} by {key.removeprefix('choices.')}",
            metrics=[metric],
            groupby=wr.Config(key),
            groupby_aggfunc="mean",
            groupby_rangefunc="stddev",
            orientation="v",
        )
        for key, metric in charts
        if metric is not None
    ]


def iterations_plot(sweep: LoggedSweep) -> Panels:
    """The main metric of the evaluations against the number of decoding iterations."""
    if sweep.score is None or not sweep.iterates:
        return []
    title = f"{sweep.score} against iterations"
    return [wr.ScatterPlot(title=title, x=wr.Config("steps"), y=wr.SummaryMetric(sweep.score))]


def learning_curves(sweep: LoggedSweep) -> Panels:
    """One line plot per metric; runs of a W&B group (one recipe, several seeds) are averaged."""
    return [
        wr.LinePlot(title=name, x=STEP, y=[name], groupby="Group", groupby_aggfunc="mean", groupby_rangefunc="stddev")
        for name in sweep.curves
    ]


def samples(sweep: LoggedSweep) -> Panels:
    """The table of samples and the decoding pages, if the runs logged any."""
    panels: Panels = []
    if any(run.has_samples for run in sweep.trainings):
        panels.append(wr.WeavePanelSummaryTable(table_name=SAMPLES, layout=wr.Layout(w=24, h=12)))
    if any(run.pages for run in sweep.trainings):
        panels.append(wr.MediaBrowser(title="Decoding pages", media_keys=[PAGE], layout=wr.Layout(w=24, h=16)))
    return panels


SECTIONS = {
    "Ablation": ablation_bars,
    "Quality against iterations": iterations_plot,
    "Learning curves": learning_curves,
    "Samples": samples,
}


def build_workspace(sweep: LoggedSweep, entity: str, project: str) -> ws.Workspace:
    """A workspace with the runs of the sweep alone, grouped by job type and recipe."""
    filled = {title: panels for title, build in SECTIONS.items() if (panels := build(sweep))}
    return ws.Workspace(
        entity=entity,
        project=project,
        name=sweep.name,
        sections=[ws.Section(name=title, panels=panels, is_open=True) for title, panels in filled.items()],
        runset_settings=ws.RunsetSettings(
            filters=[expr.Metric("ID").isin(sweep.run_ids)],
            groupby=[expr.Metric("JobType"), expr.Metric("Group")],
        ),
    )


def build_report(sweep: LoggedSweep, entity: str, project: str) -> wr.Report:
    """A report with the same panels, and links to the decoding pages."""
    # Without entity and project: those of the report. With them, the package looks the project up in the network.
    runs = wr.Runset(
        name="sweep", filters=[expr.Metric("ID").isin(sweep.run_ids)], groupby=["run.jobType", "run.group"]
    )
    counts = f"{len(sweep.trainings)} training runs, {len(sweep.evaluations)} evaluations"
    blocks: list[Any] = [wr.P(counts), wr.TableOfContents()]
    for title, build in SECTIONS.items():
        if panels := build(sweep):
            blocks += [wr.H2(title), wr.PanelGrid(runsets=[runs], panels=panels)]
    links: list[Any] = [
        wr.Link(run.name, url=f"{wandb.Settings().app_url}/{entity}/{project}/runs/{run.id}/files/{run.pages[-1]}")
        for run in sweep.trainings
        if run.pages
    ]
    if links:
        blocks += [wr.H2("Decoding pages, iteration by iteration"), wr.UnorderedList(links)]
    return wr.Report(entity=entity, project=project, title=sweep.name, blocks=blocks, width="fluid")


def specification(workspace: ws.Workspace, report: wr.Report) -> str:
    """What would be sent to W&B, as JSON."""
    views = {"workspace": workspace._to_model(), "report": report._to_model()}  # no public function does it
    dumped = {name: view.model_dump(mode="json", by_alias=True, exclude_none=True) for name, view in views.items()}
    return json.dumps(dumped, indent=2) + "\n"
