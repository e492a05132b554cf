"""The files of conf/sweep: every job composes, and the grids are those of the paper."""

import itertools
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from rdm.app.schema import check_types

CONF = Path(__file__).parents[2] / "conf"
SWEEPS = sorted(file.stem for file in (CONF / "sweep").glob("[!_]*.yaml"))
TASKS = {  # of the paper
    "table1": ("iwslt14", "wmt14", "wmt16"),
    "training_decoding": ("iwslt14", "wmt14", "wmt16"),
    "reweighting": ("iwslt14",),
    "conditioned": ("iwslt14",),
    "speed": ("qqp",),
    "decoding_time": ("wmt14",),
    "sample_sizes": ("qg", "qqp"),
    "sample_sizes_diffuseq": ("qg", "qqp"),
    "question_baselines": ("qg", "qqp"),
    "open_ended": ("wikitext103",),
}


def composed(script_name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(script_name, list(overrides), return_hydra_config=True)


def values(script_name: str, *overrides: str) -> dict[str, list[str]]:
    """What a sweep file sweeps over, by key."""
    params = composed(script_name, *overrides).hydra.sweeper.params.items()
    (jobs,) = BasicSweeper.split_arguments(
        OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in params]), None
    )
    keys = [override.partition("=")[0] for override in jobs[0]] if jobs else []
    return {key: list(dict.fromkeys(job[place] for job in jobs)) for place, key in enumerate(keys)}


@pytest.mark.parametrize("name", SWEEPS)
def test_every_job_composes(name: str) -> None:
    """All runs to be trained, and every value that is evaluated."""
    training = values("train", f"sweep={name}")
    for job in itertools.product(*training.values()) if training else ():
        config = composed("train", f"sweep={name}", *job)
        assert config.sweep.folder.startswith(name)
        assert config.hydra.mode.name == "MULTIRUN"
        config.run_dir, config.hydra = "unused", {}
        check_types(config)
    evaluation = values("evaluate", f"sweep={name}")
    assert next(iter(evaluation)) == "ckpt"  # all jobs of a checkpoint follow each other
    for place in range(max(map(len, evaluation.values()))):
        job = [choices[place % len(choices)] for choices in evaluation.values()]
        config = composed("evaluate", f"sweep={name}", *job)
        if "_target_" in config.decoding and config.decoding.name != "vanilla":  # which asks the run what it is
            check_types(config.decoding, "decoding")


@pytest.mark.slow
def test_sweeps_on_the_data_of_the_paper() -> None:
    """One word changes the data; the experiments it then names exist."""
    assert set(TASKS) == {name for name in SWEEPS if values("train", f"sweep={name}")}
    for name, tasks in TASKS.items():
        for task in tasks:
            for experiment in values("train", f"sweep={name}", f"sweep.task={task}")["experiment"]:
                assert (CONF / "experiment" / f"{experiment.removeprefix('experiment=')}.yaml").is_file()


def test_the_grids_of_the_paper() -> None:
    assert values("evaluate", "sweep=table1")["decoding.steps"] == [f"decoding.steps={n}" for n in (2, 4, 10, 16, 25)]
    time = values("evaluate", "sweep=decoding_time")
    assert time["decoding.steps"] == [f"decoding.steps={n}" for n in (2, 4, 10, 16)]
    assert time["batch_size"] == ["batch_size=50"]
    assert len(time["seed"]) == 10
    assert values("evaluate", "sweep=sample_sizes")["decoding.samples"] == ["decoding.samples=1", "decoding.samples=10"]
    diffuseq = values("evaluate", "sweep=sample_sizes_diffuseq")
    assert diffuseq["decoding.samples"] == ["decoding.samples=1", "decoding.samples=10"]
    assert composed("evaluate", "decoding=diffuseq_mbr").decoding.steps == 2000
    assert values("evaluate", "sweep=open_ended")["decoding.steps"] == [f"decoding.steps={n}" for n in (16, 64, 100)]


def test_slurm_composes() -> None:
    launcher = composed("train", "hydra/launcher=slurm", "hydra.launcher.partition=gpu").hydra.launcher
    assert (launcher._target_.rpartition(".")[2], launcher.partition, launcher.timeout_min) == (
        "SlurmLauncher",
        "gpu",
        2880,
    )
