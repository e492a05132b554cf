"""``python -m rdm.dashboard SWEEP entity=... project=...``: W&B workspace and report of a sweep.

With save=<file.json> they are written to a file instead of being sent to W&B.
"""

from pathlib import Path

from rdm.app.arguments import Parser, split_key_values
from rdm.app.scripts import run_module
from rdm.dashboard.logged import read_sweep
from rdm.errors import UserError, require
from rdm.evaluation.results import check_writable
from rdm.files import write_text

KEYS = ("entity", "project", "save")


def main() -> None:
    """Build the dashboard of a sweep and save it."""
    parser = Parser(prog="python -m rdm.dashboard", description=__doc__)
    parser.add_argument(
        "arguments", nargs="+", help="run or sweep folders; entity=<user or team>; project=<name>; save=<file.json>"
    )
    folders, values = split_key_values(parser.parse_args().arguments, KEYS)
    missing = [f"{key}=..." for key in ("entity", "project") if key not in values]
    require(not missing, f"{' '.join(missing)} missing: name the W&B user or team, and the project of the runs")
    require(
        bool(folders), "name the folder of a sweep, e.g. python -m rdm.dashboard outputs/<sweep> entity=... project=..."
    )
    if "save" in values:
        check_writable(Path(values["save"]))
    sweep = read_sweep(folders)
    try:
        import wandb

        from rdm.dashboard.views import build_report, build_workspace, specification
    except ImportError as error:
        raise UserError("rdm.dashboard needs the dashboard extra: pip install -e '.[dashboard]'") from error
    workspace = build_workspace(sweep, values["entity"], values["project"])
    report = build_report(sweep, values["entity"], values["project"])
    if "save" in values:
        write_text(Path(values["save"]), specification(workspace, report))
        print(f"wrote {values['save']}")
        return
    require(wandb.login(prompt=False), "W&B has no API key: run wandb login, or write a file with save=<file.json>")
    try:
        workspace.save()
        report.save()
    except (wandb.errors.Error, OSError, ValueError) as error:
        raise UserError(f"W&B did not accept the dashboard: {' '.join(str(error).split())}") from error
    print(f"workspace: {workspace.url}", f"report: {report.url}", sep="\n")


if __name__ == "__main__":
    run_module(main)
