"""Print statistics and examples of a data set: ``python -m rdm.data.inspect data=... [key=value]``.

It takes the overrides of train.py; ``data=`` names a file of ``conf/data``.
"""

import sys

from hydra.utils import instantiate

from rdm.app.arguments import help_requested
from rdm.app.checks import check_options, check_overrides
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
    require(not options, f"{options}: python -m rdm.data.inspect takes overrides (key=value) only; see --help")
    config = compose_config("train", overrides)
    config.run_dir = "unused"
    check_options(config, "train")
    check_overrides(config, overrides, "train")
    check_types(config.data, "data")
    from rdm.data.statistics import print_statistics  # imports torch, after the arguments have been parsed

    print_statistics(config.data.name, instantiate(config.data.module))


if __name__ == "__main__":
    run_module(main)
