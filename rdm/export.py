"""``python -m rdm.export ckpt=<run> to=<folder>``: write a trained model to a folder that can be moved and shared.

ckpt=<run>       run folder or checkpoint file
to=<folder>      a new or empty folder
average=5        number of last checkpoints whose EMA weights are averaged (default 1: the newest)
best=true        the checkpoint selected by train.py best=<metric> instead of the newest
trust=<package>  package outside rdm, or several with commas, whose classes the configuration of the run may name
"""

import sys
from pathlib import Path

from rdm.app.arguments import command, help_requested, key_values, trust_argument
from rdm.app.scripts import run_module
from rdm.app.targets import add_working_directory
from rdm.errors import require

KEYS = ("ckpt", "to", "average", "best", "trust", "debug")


def main() -> None:
    """Export the model that the arguments name."""
    if help_requested(sys.argv[1:]):
        return print(__doc__.replace("`", ""), end="")
    values = key_values(sys.argv[1:], KEYS)
    for key in ("ckpt", "to"):
        require(key in values, f"{key}: give ckpt=<run> and to=<folder>; python -m rdm.export --help lists the options")
    average, best = values.get("average", "1"), values.get("best", "false").lower()
    require(average.isdecimal(), f"average must be a number of checkpoints, got {average}")
    require(best in ("true", "false"), f"best must be true or false, got {best}")
    add_working_directory()
    # Imported when the arguments are right: torch and Lightning take seconds to import.
    from rdm.app.export import check_target, export_model
    from rdm.app.open_model import load

    folder = Path(values["to"])
    check_target(folder)
    trust = trust_argument(sys.argv[1:])
    model = load(values["ckpt"], average=int(average), best=best == "true", device="cpu", trust=trust)
    export_model(model, folder)
    print(f"wrote {folder}: rdm.load({str(folder)!r}), or {command('evaluate')} ckpt={folder}")


def run() -> None:
    """The console script ``rdm-export``."""
    run_module(main)


if __name__ == "__main__":
    run()
