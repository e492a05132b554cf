"""``python -m rdm.plan experiment=... hardware=... [key=value ...]``: estimate what a run needs before it is started.

It takes the overrides of train.py, and hardware=, vocabulary=, length= and examples= (conf/plan.yaml). Nothing is
trained and no data is read: see :mod:`rdm.plan.counting`. Communication between devices and kernel launches are not
counted, so the times are lower bounds at the assumed share of the peak rate.
"""

import sys

from rich.console import Console
from rich.table import Table

from rdm.app.arguments import help_requested
from rdm.app.checks import check_options, check_overrides, check_task
from rdm.app.composition import compose_config
from rdm.app.schema import check_types
from rdm.app.scripts import run_module
from rdm.errors import require


def main() -> None:
    overrides = sys.argv[1:]
    if help_requested(overrides):
        print(__doc__.strip())
        return
    options = " ".join(override for override in overrides if override.startswith("-"))
    require(not options, f"{options}: python -m rdm.plan takes overrides (key=value) only; see --help")
    config = compose_config("plan", overrides)
    config.run_dir = "unused"
    check_options(config, "plan")
    check_overrides(config, overrides, "plan")
    check_task(config)
    check_types(config)
    from rdm.plan.estimate import make_plan  # imports torch, after the arguments have been parsed

    plan = make_plan(config)
    table = Table(title=f"{config.name} on {plan.devices} x {plan.hardware.name}, {plan.precision}", show_header=False)
    for row in plan.rows():
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"Assumed: a vocabulary of {config.vocabulary:,}, sentences of {config.length} tokens on both sides, "
        f"{plan.hardware.utilisation:.0%} of the peak rate; change them by vocabulary=, length= and "
        "hardware.utilisation=. "
        "Not counted: communication and kernel launches, which dominate steps of a few milliseconds on a GPU."
    )


if __name__ == "__main__":
    run_module(main)
