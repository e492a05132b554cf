"""Files with one text per line: read, decoded or scored in batches, and written resumably."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from rdm.app.model import Model
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.evaluation.batched_work import BatchedWork, Result
from rdm.evaluation.generation import EMPTY, Generated, SentenceScore
from rdm.evaluation.hypotheses import rounded
from rdm.evaluation.results import check_writable
from rdm.evaluation.resumable import ResumableResults
from rdm.files import write_text
from rdm.hashing import short_hash


def generate_lines(model: Model, decoding: Decoding, config: DictConfig) -> None:
    """Decode the lines of ``input`` or of standard input; see conf/generate.yaml for the keys of ``config``."""
    sources = input_lines(config)
    work = model.generation(sources, decoding, config.batch_size, config.seed)
    settings = {**command_settings(model, config), "decoding": decoding.describe(), "sources": short_hash(*sources)}
    as_json = str(config.output).endswith(".jsonl")

    def format_results(results: Sequence[Generated | None]) -> list[str]:
        outputs = [EMPTY if result is None else result for result in results]
        fewest = min((len(output.best(None)) for output in outputs if output.candidates), default=config.nbest)
        if fewest < config.nbest:
            print(f"nbest: some sources have only {fewest} candidates", file=sys.stderr)
        return LineFormat(outputs, config.nbest).lines(sources, as_json)

    run_and_write(work, config.output, settings, str(decoding), format_results)


def score_lines(model: Model, config: DictConfig) -> None:
    """Score pairs: two tab-separated columns of ``input`` or standard input, or the files ``input`` and ``targets``."""
    sources, targets = pairs(config)
    work = model.scoring(sources, targets, config.batch_size, config.seed)
    settings = {**command_settings(model, config), "score": True, "pairs": short_hash(*sources, *targets)}
    as_json = str(config.output).endswith(".jsonl")

    def format_results(results: Sequence[SentenceScore | None]) -> list[str]:
        if not as_json:
            return ["" if each is None else f"{each.nats:.6g}\t{each.tokens}\t{each.kind}" for each in results]
        columns = zip(sources, targets, results, strict=True)
        return [json_line({"source": s, "target": t, **score_fields(result)}) for s, t, result in columns]

    run_and_write(work, config.output, settings, "scoring", format_results)


@dataclass(frozen=True)
class LineFormat:
    """How outputs are written: one line of text, one JSON object, or ``nbest`` numbered lines with scores."""

    outputs: Sequence[Generated]
    nbest: int

    def lines(self, sources: Sequence[str], as_json: bool) -> list[str]:
        """The lines of the output; ``as_json``: with the keys of hypotheses files."""
        if as_json:
            return [json_line(self._fields(*each)) for each in zip(sources, self.outputs, strict=True)]
        if self.nbest == 1:
            return [one_line(output.text) for output in self.outputs]
        numbered = enumerate(self.outputs, 1)
        return [
            f"{number}\t{each.score:.6g}\t{one_line(each.text)}"
            for number, output in numbered
            for each in output.best(self.nbest)
        ]

    def _fields(self, source: str, output: Generated) -> dict[str, Any]:
        best = output.best(self.nbest)
        return {
            "source": source,
            "hypothesis": output.text,
            "score": rounded(output.score) if best else None,
            "candidates": [each.text for each in best],
            "scores": [rounded(each.score) for each in best],
        }


def score_fields(result: SentenceScore | None) -> dict[str, Any]:
    """The fields of a score for JSON; null for an empty line."""
    if result is None:
        return {"nats": None, "tokens": 0, "kind": None}
    return {"nats": rounded(result.nats), "tokens": result.tokens, "kind": result.kind}


def command_settings(model: Model, config: DictConfig) -> dict[str, Any]:
    """Settings that stored results depend on, besides the text and the decoding."""
    return {
        **model.describe(),
        "checkpoints": [str(file) for file in model.run.checkpoints(config.average)],
        "seed": config.seed,
        "batch_size": config.batch_size,
    }


def run_and_write(
    work: BatchedWork[Result],
    output: str | None,
    settings: Mapping[str, Any],
    label: str,
    format_results: Callable[[Sequence[Result | None]], list[str]],
) -> None:
    """Run ``work`` and print the formatted results, or write them to a file.

    With a file, results are stored beside it while the work runs, and a killed command continues.
    """
    if output is None:
        lines = format_results(work.run(label=label))
        sys.stdout.flush()
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
        sys.stdout.buffer.flush()
        return
    file = Path(output)
    check_writable(file)
    with ResumableResults(file, settings) as store:
        require(bool(store.done) or not file.exists(), f"output: {file} exists; delete it, or choose another file")
        announce(store, work, file)
        write_text(file, "".join(f"{line}\n" for line in format_results(work.run(store, label))))
        store.remove()
    print(f"wrote {file}")


def announce(store: ResumableResults, work: BatchedWork[Any], target: Path) -> None:
    """Print a notice if an earlier command is continued."""
    if store.done:
        done = sum(len(rows) for rows in store.done.values())
        total = sum(len(batch) for batch in work.batches)
        print(f"resuming {target}: {done} of {total} texts are done", file=sys.stderr)


def input_lines(config: DictConfig) -> list[str]:
    """The lines of ``input``, or of standard input."""
    return standard_input() if config.input is None else read_text_lines("input", config.input)


def pairs(config: DictConfig) -> tuple[list[str], list[str]]:
    """Sources and targets to score."""
    lines = input_lines(config)
    if config.targets is not None:
        targets = read_text_lines("targets", config.targets)
        counts = f"input has {len(lines)} lines, but targets has {len(targets)}"
        require(len(lines) == len(targets), f"{counts}: the lines must be aligned")
        return lines, targets
    columns = [line.split("\t") if line else ["", ""] for line in lines]
    for number, column in enumerate(columns, 1):
        message = f"line {number} has {len(column)} columns; a line is source, tab, target (or add targets=<file>)"
        require(len(column) == 2, f"score: {message}")
    return [source.strip() for source, _ in columns], [target.strip() for _, target in columns]


def read_text_lines(key: str, path: str) -> list[str]:
    """The lines of a UTF-8 file, as :func:`split_lines` gives them."""
    try:
        return split_lines(Path(path).read_bytes(), f"{key}: {path}")
    except OSError as error:
        raise UserError(f"{key}: {path} cannot be read: {error.strerror}") from error


def standard_input() -> list[str]:
    """The lines of standard input, whatever the locale."""
    return split_lines(sys.stdin.buffer.read(), "text=-: standard input")


def typed_lines() -> Iterator[str]:
    """The lines of standard input as they are typed, with a prompt if it is a terminal."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield from split_lines(line, "interactive: standard input")


def split_lines(content: bytes, name: str) -> list[str]:
    """The lines of UTF-8 text without line ends and surrounding white space."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error
    # Only "\n" ends a line: str.splitlines would also split at form feeds and Unicode separators inside a sentence.
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


def one_line(text: str) -> str:
    """``text`` without line ends, so that a file has one line per text."""
    return text.replace("\r", " ").replace("\n", " ")


def json_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)
