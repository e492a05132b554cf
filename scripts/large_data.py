"""Measure large data: ``python scripts/large_data.py --pairs 4000000 --words 100000000``.

Generates text (scripts/large_text.py), prepares it through the data modules, loads it, and prints a table: seconds, CPU
seconds of all processes, peak memory and peak resident set of the process tree. Memory is what cannot be given back
(anonymous and shared pages, each counted once); the resident set also counts pages of memory-mapped files, which the
kernel drops when memory is needed. Needs Linux.

- ``prepare``: tokenizer and encoded splits from an empty cache.
- ``encode``: the same with the tokenizer of ``prepare``, for comparison with ``datasets``.
- ``load``: from the start of Python to the first training batch, with the cache of ``prepare``.
- ``batches, N workers``: the first batches of an epoch.
- ``8 ranks``: eight processes at once, each to its first training batch.
- ``evaluate``: with ``--sources N``, an evaluation without the network, and its peak resident set after every part.
- ``datasets``: pairs encoded with the ``datasets`` library, one process a core, with the tokenizer of ``prepare``, and
  batches of 400 random rows read from the result (as lists, not padded).

The text stays in ``--folder`` if one is given, and is used again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

RANKS, BATCHES = 8, 300
PAIRS, WORDS, SOURCES = "pairs", "words", "sources"
LABELS = ("prepare", "encode", "load", "batches", f"{RANKS} ranks", "datasets", "evaluate")


# In the measured processes.


def data_module(kind: str, folder: Path, workers: int = 0) -> Any:
    """Return the data module of WMT14 or WikiText-103 with the generated text and a budget of one of eight devices."""
    from rdm.data.corpus import AlignedText, Documents, Lines
    from rdm.data.loading import Loading
    from rdm.data.open_ended import OpenEndedDataModule
    from rdm.data.pairs import TranslationDataModule
    from rdm.data.selection import Selection
    from rdm.data.tokenizer import BytePairs

    cache = str(folder / "cache")
    if kind in (PAIRS, SOURCES):
        corpus = Selection(AlignedText(str(folder), "en", "de"))
        loading = Loading(max_tokens=16_384, num_workers=workers, cache=cache)
        return TranslationDataModule(corpus, BytePairs(40_624), loading, max_length=255)
    lines = Lines(str(folder), "train.txt", "valid.txt", "test.txt")
    loading = Loading(max_tokens=None, max_sentences=16, num_workers=workers, cache=cache)
    return OpenEndedDataModule(Selection(Documents(lines, "^= (?!= ).+ =$")), BytePairs(50_257), loading)


def prepare(kind: str, folder: Path, number: int) -> dict[str, Any]:
    data = data_module(kind, folder)
    data.prepare_data()
    return {"summary": data.summary()}


def encode(kind: str, folder: Path, number: int) -> dict[str, Any]:
    """Encode the splits again."""
    for entry in (folder / "cache").iterdir():
        if entry.name != "tokenizers":
            shutil.rmtree(entry)
    return prepare(kind, folder, number)


def load(kind: str, folder: Path, number: int) -> dict[str, Any]:
    """Load the first batch as rank ``number``."""
    data = data_module(kind, folder)
    data._rank_and_world_size = lambda: (number, RANKS)
    next(iter(data.train_dataloader()))
    return {}


def batches(kind: str, folder: Path, number: int) -> dict[str, Any]:
    """Iterate over batches with ``number`` workers; the first one is not counted."""
    loader = data_module(kind, folder, workers=number).train_dataloader()
    stream, count, tokens = iter(loader), 0, 0
    next(stream)
    began = time.perf_counter()
    for batch in islice(stream, BATCHES):
        count += 1
        tokens += batch.source.numel() + batch.target.numel()
    seconds = time.perf_counter() - began
    return {"rates": f"{count / seconds:,.0f} batches/s, {tokens / seconds / 1e6:.2f}M tokens/s"}


def use_datasets(kind: str, folder: Path, number: int) -> dict[str, Any]:
    """Encode the training pairs with ``datasets`` in ``number`` processes."""
    from datasets import concatenate_datasets, load_dataset

    from rdm.data.tokenizer import Tokenizer

    (file,) = (folder / "cache" / "tokenizers").glob("*/tokenizer.json")
    tokenizer = Tokenizer.load(file)

    def read(side: str) -> Any:
        files, cache = str(folder / f"train.{side}"), str(folder / "datasets")
        return load_dataset("text", data_files=files, split="train", cache_dir=cache).rename_column("text", side)

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {f"{side}_ids": tokenizer.encode(rows[side]) for side in ("en", "de")}

    pairs = concatenate_datasets([read(side) for side in ("en", "de")], axis=1)
    encoded = pairs.map(encode, batched=True, num_proc=number, remove_columns=["en", "de"])
    rows = np.random.default_rng(0).integers(len(encoded), size=(BATCHES, 400))
    began = time.perf_counter()
    tokens = sum(sum(map(len, side)) for batch in rows for side in encoded[batch].values())
    seconds = time.perf_counter() - began
    return {"rates": f"{BATCHES / seconds:,.0f} batches/s, {tokens / seconds / 1e6:.2f}M tokens/s"}


def evaluate(kind: str, folder: Path, number: int) -> dict[str, Any]:
    """Do what evaluate.py does with the training pairs, but for the network: every output is the reference."""
    from itertools import chain

    from rdm.data.codec import PairCodec
    from rdm.data.tokenizer import BytePairs
    from rdm.evaluation.batched_work import BatchedWork, batches_by_length
    from rdm.evaluation.generation import EMPTY, Generated, ScoredText, as_outputs
    from rdm.evaluation.hypotheses import write_hypotheses
    from rdm.evaluation.metrics.corpus import SacreBleu

    data = data_module(kind, folder)
    texts = chain.from_iterable(zip(*data.corpus.read("valid"), strict=True))
    data.use_codec(PairCodec(BytePairs(8_000)(list(texts)), 255))
    peaks = {"start": peak_memory()}
    questions = data.questions("train")
    peaks["questions"] = peak_memory()
    grouped = batches_by_length({index: (len(row),) for index, row in enumerate(questions.rows)}, 50)

    def compute(batch: int) -> list[Generated]:
        copies = (bytes(questions.references[0][index], "utf-8").decode() for index in grouped[batch])
        return [Generated(text, -1.0, [ScoredText(text, -1.0)], calls=1.0, tokens=20) for text in copies]

    work = BatchedWork(len(questions), grouped, compute, Generated.restore)
    outputs = as_outputs([EMPTY if each is None else each for each in work.run()])
    peaks["outputs"] = peak_memory()
    write_hypotheses(folder / "hypotheses.jsonl", questions.sources, questions.references, outputs)
    peaks["hypotheses file"] = peak_memory()
    SacreBleu()(outputs.texts, questions.references, questions.sources, outputs.candidates)
    peaks["BLEU"] = peak_memory()
    return {"rates": ", ".join(f"{name} {peak:,.0f} MB" for name, peak in peaks.items())}


def peak_memory() -> float:
    """Return the largest resident set of this process so far, in MB."""
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


STAGES = {
    "prepare": prepare,
    "encode": encode,
    "load": load,
    "batches": batches,
    "datasets": use_datasets,
    "evaluate": evaluate,
}


# In the measuring process.


@dataclass
class Usage:
    """What some processes took."""

    seconds: float
    cpu: float
    memory: float  # MB, peak
    resident: float  # MB, peak
    reports: list[dict[str, Any]]


def process_tree(root: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield root
    try:
        for thread in Path(f"/proc/{root}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from process_tree(int(child))
    except OSError:
        return  # it has ended


def memory_of(process: int) -> tuple[int, int]:
    """Return anonymous and shared memory, and with mapped files, in kB; pages of several processes are divided."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0  # it has ended
    values = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return values["Pss_Anon"] + values["Pss_Shmem"], values["Pss"]


def measure(stage: str, kind: str, folder: Path, numbers: list[int]) -> Usage:
    """Run a stage once for each number, all at once."""
    before, began = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, "--stage", stage, "--kind", kind, "--folder", str(folder), "--number"]
    running = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in numbers]
    peak = [0, 0]
    while any(process.poll() is None for process in running):
        found = [memory_of(each) for process in running for each in set(process_tree(process.pid))]
        peak = [max(most, sum(column)) for most, column in zip(peak, zip(*found, strict=True), strict=True)]
        time.sleep(min(0.1 + (time.perf_counter() - began) / 100, 2))  # looking costs a few milliseconds
    seconds, after = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"{stage} failed")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Usage(seconds, cpu, peak[0] / 1024, peak[1] / 1024, [json.loads(text.splitlines()[-1]) for text in outputs])


def run(kind: str, folder: Path, chosen: Sequence[str]) -> None:
    """Measure stages for one kind of data and print a table."""
    if "prepare" in chosen:
        shutil.rmtree(folder / "cache", ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.glob("train.*")) / 1e6
    cores = len(os.sched_getaffinity(0))
    common = [("prepare", "prepare", [0]), ("encode", "encode", [0]), ("load", "load", [0])]
    common += [(f"batches, {workers} workers", "batches", [workers]) for workers in (0, 4)]
    common += [(f"{RANKS} ranks", "load", list(range(RANKS)))]
    lines = {
        PAIRS: [*common, ("datasets", "datasets", [cores])],
        WORDS: common,
        SOURCES: [("evaluate", "evaluate", [0])],
    }
    print(f"\n{size:,.0f} MB of text ({kind}), {cores} cores\n")
    print("| | seconds | CPU seconds | memory, MB | resident, MB | |\n| --- | ---: | ---: | ---: | ---: | --- |")
    for label, stage, numbers in lines[kind]:
        if label.split(",")[0] not in chosen:
            continue
        usage = measure(stage, kind, folder, numbers)
        report = usage.reports[0].get("rates") or "; ".join(usage.reports[0].get("summary", []))
        cells = (f"{usage.seconds:.1f}", f"{usage.cpu:.1f}", f"{usage.memory:,.0f}", f"{usage.resident:,.0f}", report)
        print(f"| {label} |", " | ".join(cells), "|", flush=True)
    cached = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file()) / 1e6
    print(f"\ncache: {cached:,.0f} MB", flush=True)
    shutil.rmtree(folder / "datasets", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=0, help="number of sentence pairs; WMT14 has 4 million")
    parser.add_argument("--words", type=int, default=0, help="number of words; WikiText-103 has 100 million")
    parser.add_argument("--sources", type=int, default=0, help="number of sources of an evaluation without a network")
    parser.add_argument("--folder", type=Path, help="where text and cache are; default: a temporary folder")
    parser.add_argument("--only", nargs="+", choices=LABELS, default=LABELS, help="lines of the table")
    for hidden in ("--stage", "--kind", "--number"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        result = STAGES[options.stage](options.kind, options.folder, int(options.number))
        print(json.dumps(result))
        return
    from large_text import write_documents, write_pairs

    with tempfile.TemporaryDirectory() as temporary:
        root = options.folder or Path(temporary)
        writers = {PAIRS: write_pairs, WORDS: write_documents, SOURCES: write_pairs}
        for kind, write in writers.items():
            size = getattr(options, kind)
            folder = root / f"{kind}{size}"
            if size and not folder.exists():
                draft = folder.with_name(f"{folder.name}.partial")
                write(draft, size)
                draft.rename(folder)
            if size:
                run(kind, folder, options.only)


if __name__ == "__main__":
    main()
