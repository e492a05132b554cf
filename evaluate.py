"""Decode a split and record the score: ``python evaluate.py ckpt=outputs/<run>``; see conf/evaluate.yaml."""

import time
from pathlib import Path

import hydra
from omegaconf import DictConfig

from rdm import cli
from rdm.config import EvaluateOptions, check_options
from rdm.errors import require
from rdm.evaluation.decode import translate
from rdm.evaluation.metrics import sacre_bleu
from rdm.evaluation.results import append
from rdm.runs import commit, load


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@cli.job
def main(config: DictConfig) -> str:
    check_options(config, EvaluateOptions)
    require(config.limit is None or config.limit >= 1, f"limit must be at least 1, got {config.limit}")
    loaded = load(config)
    run, decoding, data = loaded.run, loaded.decoding, loaded.data
    asked = data.questions(config.split).first(config.limit)
    outputs, seconds = translate(loaded.system, decoding, data, asked.rows, config.batch_size, config.seed)
    metric = sacre_bleu(outputs, asked.references)
    row = {
        "run": str(run.folder),
        "system": run.config.name,
        "checkpoint_step": loaded.step,
        "average": config.average,
        "metric": metric.name,
        "value": round(metric.value, 4),
        "signature": metric.signature,
        **decoding.describe(),
        "seed": config.seed,
        "data": run.config.data.name,
        "text": data.corpus.fingerprint(config.split),
        "split": config.split,
        "sentences": len(asked),
        "sources_cut": sum(asked.cut),
        "batch_size": config.batch_size,
        "sentences_per_second": round(len(asked) / seconds, 2),
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    results = Path(config.results or run.folder / "results.jsonl")
    append(results, row)
    if any(asked.cut):
        print(f"{sum(asked.cut)} sources are longer than the model takes and were decoded without their end")
    print(
        f"{row['system']} {decoding}: {metric.value:.2f} {metric.name}, "
        f"{row['sentences_per_second']} sentences/s, {len(asked)} sentences"
    )
    return str(results)


if __name__ == "__main__":
    cli.run(main)
