"""Decode a split and record its metrics: ``python evaluate.py ckpt=outputs/<run>``; see conf/evaluate.yaml."""

import time
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from rdm.app.checks import check_evaluation, chosen, overridden_keys
from rdm.app.model import Model
from rdm.app.open_model import load_configured, load_teacher
from rdm.app.run_folder import git_commit
from rdm.app.schema import check_types
from rdm.app.sweeps import JobResult, sweeping
from rdm.app.targets import build
from rdm.errors import require
from rdm.evaluation.generation import decode_sources
from rdm.evaluation.hypotheses import write_hypotheses
from rdm.evaluation.likelihood import likelihood_metrics
from rdm.evaluation.metrics.base import Scorer
from rdm.evaluation.results import append, check_writable, find_row
from rdm.evaluation.settings import decoding_settings, evaluation_hash
from rdm.evaluation.tables import main_value
from rdm.hashing import settings_hash
from rdm.machine import describe_machine


def job(config: DictConfig) -> JobResult:
    """Decode a split, append a row to the results; in a sweep, existing rows are skipped."""
    check_evaluation(config)
    model = load_configured(config)
    decoding = model.decoding(config.decoding, load_teacher(config, model))
    typed = overridden_keys("data")
    data_config = model.data_config(config.data, typed)
    scorers = build_scorers(config, data_config.data)
    results = Path(config.results or model.run.writable / "results.jsonl")
    check_writable(results)
    data = model.data(data_config)
    questions = data.questions(config.split).first(config.limit)
    settings = {
        **model.describe(),
        **decoding_settings(decoding.name, decoding.steps, decoding.candidates, decoding.describe()),
        "average": model.average,
        "seed": config.seed,
        "text": data.corpus.fingerprint(config.split),
        "split": config.split,
        "sentences": len(questions),
        "sources_cut": sum(questions.cut),
        "batch_size": config.batch_size,
        "data": data_config.data.name,
        **({"data_overrides": {key: plain_value(data_config.data, key) for key in typed}} if typed else {}),
    }
    evaluation = evaluation_hash(settings, scorers, config.likelihood)
    known = find_row(results, evaluation) if sweeping() and not config.redo else None
    if known:
        print(f"{known['system']} {decoding}: already in {results}")
        return finish(config, model, results, known)

    rows, label = questions.rows, str(decoding)
    outputs = decode_sources(model.system, decoding, model.codec, rows, config.batch_size, config.seed, label)
    hypotheses = results.parent / "hypotheses" / f"{settings_hash(settings)}.jsonl"
    write_hypotheses(hypotheses, questions.sources, questions.references, outputs)
    metrics = [scorer(outputs.texts, questions.references, questions.sources, outputs.candidates) for scorer in scorers]
    if config.likelihood is not None:
        options = (config.split, config.limit, config.batch_size, config.likelihood, config.seed)
        metrics += likelihood_metrics(model.system, data, *options)
    row = {
        **settings,
        "evaluation": evaluation,
        "metrics": {metric.name: metric.row() for metric in metrics},
        "sentences_per_second": float(f"{len(questions) / outputs.seconds:.4g}"),
        **({} if outputs.calls_per_sentence is None else {"calls_per_sentence": outputs.calls_per_sentence}),
        **({} if outputs.tokens_per_call is None else {"tokens_per_call": round(outputs.tokens_per_call, 4)}),
        "training": model.cost,
        "machine": describe_machine(),
        "hypotheses": str(hypotheses),
        "commit": git_commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    append(results, row)
    if any(questions.cut):
        print(f"{sum(questions.cut)} sources exceed the model's maximum length and were truncated")
    print(f"{row['system']} {decoding}: {row['sentences_per_second']} sentences/s, {len(questions)} sentences")
    print(*(f"  {metric}" for metric in metrics), f"  wrote {hypotheses}", sep="\n")
    return finish(config, model, results, row)


def build_scorers(config: DictConfig, data: DictConfig) -> list[Scorer]:
    """The metrics named on the command line, by default those of the data."""
    metrics = config.get("metrics") or data.metrics
    require(any(metrics.values()), "metrics: name at least one")
    return [build(scorer, f"metrics.{name!s}", Scorer) for name, scorer in metrics.items() if scorer]


def plain_value(config: DictConfig, key: str) -> Any:
    """The value of a dotted key as JSON data."""
    value = OmegaConf.select(config, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def schedule_name(row: dict[str, Any]) -> str | None:
    """The class of the decoding schedule; None for decodings without one."""
    return (row["decoding"].get("schedule") or {}).get("class")


def finish(config: DictConfig, model: Model, results: Path, row: dict[str, Any]) -> JobResult:
    """Send a row to the loggers, and return it as the result of the job."""
    if config.get("logger"):
        from rdm.training.loggers import log_row  # imports Lightning, which takes seconds

        config.run_dir = str(results.parent / "logs" / row["evaluation"])
        decoded = {"decoding": row["strategy"], "schedule": schedule_name(row), "steps": row.get("steps")}
        config.choices = {**model.run.choices, **chosen(), **decoded}
        check_types(config.logger, "logger")
        for logger in config.logger.values():
            log_row(instantiate(logger), row)
    return JobResult(main_value(row), row)
