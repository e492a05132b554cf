"""``python -m rdm.bench``: how fast training and decoding are, in units of this machine's own matrix product.

Machines differ and so do moments, so every figure is also given per GFLOP/s of a float32 matrix product measured in
the same run. Medians over repetitions; the product is measured before and after, to tell a noisy machine.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from rdm import cli
from rdm.data.batching import Batch
from rdm.evaluation.results import check_writable
from rdm.systems.base import System
from rdm.training.module import combine
from rdm.vocab import Vocab

CONF = Path(__file__).parent.parent / "conf"
SYSTEMS = ("rdm_absorbing", "rdm_multinomial", "absorbing", "multinomial")
DECODINGS = ("vanilla", "rdm", "rdm_cond", "rdm_commit")


def seconds(action: Callable[[], object], repetitions: int) -> float:
    """The median time of ``action``, after one run to warm up."""
    action()
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return median(times)


def gemm_rate() -> float:
    """GFLOP/s of a product of 3072 x 512 by 512 x 1024."""
    a, b = torch.randn(3072, 512), torch.randn(512, 1024)
    return 2 * 3072 * 512 * 1024 / seconds(lambda: a @ b, 20) / 1e9


def build(diffusion: str, model: str, vocab: Vocab, decoding: str = "rdm") -> tuple[System, Any]:
    """A system and a decoding strategy with random weights."""
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        config = compose("train", [f"diffusion={diffusion}", f"model={model}", f"decoding={decoding}"])
    config.vocab = {**config.vocab, "size": vocab.size}
    return instantiate(config.system), instantiate(config.decoding)


def random_batch(vocab: Vocab, sentences: int, length: int) -> Batch:
    """``sentences`` pairs of ``length`` tokens each side, special symbols included."""

    def side() -> Tensor:
        tokens = torch.randint(len(vocab.specials), vocab.size, (sentences, length))
        tokens[:, 0], tokens[:, -1] = vocab.bos, vocab.eos
        return tokens

    counts = {"sentences": sentences, "tokens": sentences * length, "ordinary": sentences * (length - 2)}
    return Batch(side(), side(), torch.arange(sentences), {name: torch.tensor(n) for name, n in counts.items()})


def same_length(logits: Tensor, count: int) -> Tensor:
    """Length candidates of 22 tokens, whatever the head says."""
    return torch.full((len(logits), count), 22)


def training_rate(system: System, batch: Batch, repetitions: int) -> float:
    """Target tokens a second: forward, backward and update."""
    optimizer = torch.optim.AdamW(system.parameters(), fused=True)

    def step() -> None:
        terms = system.loss(batch)
        combine(terms, {term.name: term.total / batch.counts[term.unit] for term in terms}).backward()
        optimizer.step()
        optimizer.zero_grad()

    return int(batch.counts["tokens"]) / seconds(step, repetitions)


def main() -> None:
    parser = cli.Parser(prog="python -m rdm.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small model, few repetitions: under a minute")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench.json"))
    arguments = parser.parse_args()
    check_writable(arguments.out)
    model, size, repetitions = ("tiny", 1000, 3) if arguments.quick else ("iwslt14", 10_152, 5)
    vocab, before = Vocab(size), gemm_rate()
    rows: list[tuple[str, str, float, str]] = []
    batch = random_batch(vocab, 64, 24)
    for name in track(SYSTEMS, "training"):
        system, _ = build(name, model, vocab)
        rows.append(("train", name, training_rate(system.train(), batch, repetitions), "target tokens/s"))
    for name in track(DECODINGS, "decoding"):
        system, decoding = build("rdm_absorbing", model, vocab, name)
        source = random_batch(vocab, 25, 24).source
        decoding.length_choice = same_length  # an untrained length head would ask for any length
        rate = len(source) / seconds(lambda: system.eval().generate(source, decoding), 1)  # noqa: B023
        rows.append(("decode", f"{name}, 10 iterations", rate, "sentences/s"))
    after = gemm_rate()
    rate = (before + after) / 2
    table = Table(
        title=f"{model} model, vocabulary {size}; matrix product {before:.0f} GFLOP/s before, {after:.0f} after"
    )
    for column in ("what", "system", "rate", "unit", "per GFLOP/s"):
        table.add_column(column, justify="right" if column in ("rate", "per GFLOP/s") else "left")
    for what, name, value, unit in rows:
        table.add_row(what, name, f"{value:.2f}", unit, f"{value / rate:.4f}")
    Console().print(table)
    if abs(before - after) > 0.2 * rate:
        print("warning: the matrix product changed by more than a fifth during the run; the machine is busy")
    results = [{"what": w, "name": n, "rate": v, "unit": u, "per_gflops": v / rate} for w, n, v, u in rows]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"model": model, "vocabulary": size, "gflops_before": before, "gflops_after": after, "rows": results}
    arguments.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    cli.run(main)
