"""Decode a split and record its metrics: ``python evaluate.py ckpt=outputs/<run>``; see conf/evaluate.yaml."""

import time
from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from rdm import cli
from rdm.config import EvaluateOptions, build, check_options, check_types, chosen
from rdm.errors import require
from rdm.evaluation.decode import translate
from rdm.evaluation.likelihood import measure
from rdm.evaluation.metrics.base import Scorer
from rdm.evaluation.results import Row, append, check_writable, find, fingerprint, write_hypotheses
from rdm.evaluation.tables import main_value
from rdm.runs import Loaded, commit, load
from rdm.sweeps import Outcome, every_run, sweeping
from rdm.training.loggers import closing_wandb, log_row
from rdm.training.training_cost import describe_machine


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@cli.job
@closing_wandb()
def main(config: DictConfig) -> Outcome:
    check_options(config, EvaluateOptions)
    require(config.limit is None or config.limit >= 1, f"limit must be at least 1, got {config.limit}")
    draws = config.likelihood
    require(draws in (None, "all") or draws >= 1, f"likelihood must be all or at least 1 draw, got {draws}")
    loaded = load(config)
    results = results_file(config, loaded)
    check_writable(results)
    data, wanted = loaded.data, loaded.metrics(config.get("metrics"))
    asked = data.questions(config.split).first(config.limit)
    settings = {
        **loaded.describe(),
        "average": config.average,
        "seed": config.seed,
        "text": data.corpus.fingerprint(config.split),
        "split": config.split,
        "sentences": len(asked),
        "sources_cut": sum(asked.cut),
        "batch_size": config.batch_size,
    }
    evaluation = fingerprint({**settings, "metrics": OmegaConf.to_container(wanted), "likelihood": draws})
    known = find(results, evaluation) if sweeping() and not config.redo else None
    if known:
        print(f"{known['system']} {loaded.decoding}: in {results} already")
        return told(config, loaded, known)

    scorers = [build(scorer, f"metrics.{name!s}", Scorer) for name, scorer in wanted.items() if scorer]
    outputs = translate(loaded.system, loaded.decoding, data, asked.rows, config.batch_size, config.seed)
    hypotheses = results.parent / "hypotheses" / f"{fingerprint(settings)}.jsonl"
    write_hypotheses(hypotheses, asked.sources, asked.references, outputs)
    metrics = [scorer(outputs.texts, asked.references, asked.sources, outputs.candidates) for scorer in scorers]
    if draws is not None:
        metrics += measure(loaded.system, data, config.split, config.limit, config.batch_size, draws, config.seed)
    row = {
        **settings,
        "evaluation": evaluation,
        "metrics": {metric.name: metric.row() for metric in metrics},
        "sentences_per_second": float(f"{len(asked) / outputs.seconds:.4g}"),
        "training": loaded.training,
        "machine": describe_machine(),
        "hypotheses": str(hypotheses),
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    append(results, row)
    if any(asked.cut):
        print(f"{sum(asked.cut)} sources are longer than the model takes and were decoded without their end")
    print(f"{row['system']} {loaded.decoding}: {row['sentences_per_second']} sentences/s, {len(asked)} sentences")
    print(*(f"  {metric}" for metric in metrics), f"  wrote {hypotheses}", sep="\n")
    return told(config, loaded, row)


def results_file(config: DictConfig, loaded: Loaded) -> Path:
    return Path(config.results or loaded.run.folder / "results.jsonl")


def told(config: DictConfig, loaded: Loaded, row: Row) -> Outcome:
    """What a row comes to, logged if there is a logger."""
    if config.get("logger"):
        config.run_dir = str(results_file(config, loaded).parent / "logs" / row["evaluation"])
        config.choices = {**loaded.run.choices, **chosen(), "decoding": row["strategy"], "steps": row.get("steps")}
        check_types(config.logger, "logger")
        log_row(instantiate(config.logger), row)
    return Outcome(main_value(row), row)


if __name__ == "__main__":
    cli.run(main, every_run)
