"""Decode a split and record its metrics: ``python evaluate.py ckpt=outputs/<run>``; see conf/evaluate.yaml."""

import time
from pathlib import Path

import hydra
from omegaconf import DictConfig

from rdm import cli
from rdm.config import EvaluateOptions, check_options
from rdm.errors import require
from rdm.evaluation.decode import translate
from rdm.evaluation.likelihood import measure
from rdm.evaluation.results import append, check_writable, fingerprint, write_hypotheses
from rdm.runs import commit, load


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@cli.job
def main(config: DictConfig) -> str:
    check_options(config, EvaluateOptions)
    require(config.limit is None or config.limit >= 1, f"limit must be at least 1, got {config.limit}")
    draws = config.likelihood
    require(draws in (None, "all") or draws >= 1, f"likelihood must be all or at least 1 draw, got {draws}")
    loaded = load(config)
    results = Path(config.results or loaded.run.folder / "results.jsonl")
    check_writable(results)
    data, scorers = loaded.data, loaded.scorers(config.get("metrics"))
    asked = data.questions(config.split).first(config.limit)
    outputs = translate(loaded.system, loaded.decoding, data, asked.rows, config.batch_size, config.seed)
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
    hypotheses = results.parent / "hypotheses" / f"{fingerprint(settings)}.jsonl"
    write_hypotheses(hypotheses, asked.sources, asked.references, outputs)
    metrics = [scorer(outputs.texts, asked.references, asked.sources, outputs.candidates) for scorer in scorers]
    if draws is not None:
        metrics += measure(loaded.system, data, config.split, config.limit, config.batch_size, draws, config.seed)
    speed = round(len(asked) / outputs.seconds, 2)
    row = {
        **settings,
        "metrics": {metric.name: metric.row() for metric in metrics},
        "sentences_per_second": speed,
        "hypotheses": str(hypotheses),
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    append(results, row)
    if any(asked.cut):
        print(f"{sum(asked.cut)} sources are longer than the model takes and were decoded without their end")
    print(f"{row['system']} {loaded.decoding}: {speed} sentences/s, {len(asked)} sentences")
    print(*(f"  {metric}" for metric in metrics), f"  wrote {hypotheses}", sep="\n")
    return str(results)


if __name__ == "__main__":
    cli.run(main)
