"""``python -m rdm.calibrate RUN``: how many length candidates to decode, and how much their length counts.

Candidates of a validation set are decoded once. Then every number of candidates (the most likely lengths first) and
every weight of ``score + weight * log p(length | source)`` is tried (``selection=length_aware``).
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from rdm.app.arguments import Parser
from rdm.app.model import Model
from rdm.app.open_model import load
from rdm.app.scripts import run_module
from rdm.decoding.candidates import CandidateSet, Selection
from rdm.decoding.sampler import Sampler
from rdm.describe import with_argument
from rdm.errors import UserError, require
from rdm.evaluation.decode import decode_batch
from rdm.evaluation.metrics.corpus import sacre_bleu

WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


class ScoreRecorder(Selection):
    """Chooses by the score alone, and keeps the scores and length log-probabilities ``[B, m]`` of the last batch."""

    needs_length_head = True

    def scores(self, candidates: CandidateSet) -> Tensor:
        assert candidates.length_log_probs is not None
        self.recorded = candidates.scores.cpu(), candidates.length_log_probs.cpu()
        return candidates.scores


def choose(scores: Tensor, length_log_probs: Tensor, count: int, weight: float) -> list[int]:
    """Return the index of the chosen candidate of each source, among the first ``count``.

    >>> choose(torch.tensor([[-0.5, -0.6, -0.1]]), torch.tensor([[-1.0, -2.0, -9.0]]), count=3, weight=0.1)
    [0]
    """
    return (scores + weight * length_log_probs)[:, :count].argmax(1).tolist()


def calibrate(
    model: Model, sentences: int | None, counts: Sequence[int], weights: Sequence[float], batch_size: int = 50
) -> dict[tuple[int, float], float]:
    """Return sacreBLEU on the first validation ``sentences`` for each number of candidates and each weight."""
    require(min(counts) >= 1, f"--candidates must be at least 1, got {min(counts)}")
    require(min(weights) >= 0, f"--weights must be 0 or above, got {min(weights)}")
    recorder = ScoreRecorder()
    sampler = model.decoding(OmegaConf.create({"length_candidates": max(counts)}))
    if not isinstance(sampler, Sampler) or sampler.prune_after is not None or sampler.samples != max(counts):
        raise UserError(f"{model.run.folder}: decoding={sampler.name} does not decode one text per length")
    decoding = with_argument(sampler, "selection", recorder)
    model.system.check(decoding)
    questions = model.data().questions("valid").first(sentences)
    order = sorted(range(len(questions)), key=lambda index: len(questions.rows[index]))
    texts: dict[int, list[str]] = {}
    scores, lengths = [], []
    starts = range(0, len(order), batch_size)
    for start in track(starts, "decoding", transient=True):
        indices = order[start : start + batch_size]
        rows = [list(questions.rows[index]) for index in indices]
        generator = torch.Generator(next(model.system.parameters()).device).manual_seed(start)
        decoded = decode_batch(model.system, decoding, model.codec, rows, generator)
        texts |= dict(zip(indices, decoded.candidates, strict=True))
        scores.append(recorder.recorded[0])
        lengths.append(recorder.recorded[1])
    table = torch.cat(scores), torch.cat(lengths)
    results = {}
    for count in counts:
        for weight in weights:
            chosen = dict(zip(order, choose(*table, count, weight), strict=True))
            hypotheses = [texts[index][chosen[index]] for index in range(len(questions))]
            results[count, weight] = sacre_bleu(hypotheses, questions.references)[0]
    return results


def main() -> None:
    """Print BLEU for all combinations, and the overrides of the best."""
    parser = Parser(prog="python -m rdm.calibrate", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=500, help="validation sentences, the first ones")
    parser.add_argument("--candidates", type=int, nargs="+", default=[1, 3, 5, 9], help="numbers of candidates")
    parser.add_argument("--weights", type=float, nargs="+", default=list(WEIGHTS), help="weights of the length")
    arguments = parser.parse_args()
    model = load(arguments.run)
    results = calibrate(model, arguments.sentences, arguments.candidates, arguments.weights)
    table = Table(title=f"sacreBLEU of {arguments.sentences} validation sentences", title_justify="left")
    for column in ("weight", *(f"{count} candidates" for count in arguments.candidates)):
        table.add_column(column, justify="right")
    for weight in arguments.weights:
        table.add_row(f"{weight:g}", *(f"{results[count, weight]:.2f}" for count in arguments.candidates))
    Console().print(table)
    count, weight = max(results, key=lambda key: results[key])
    options = f"selection=length_aware decoding.selection.weight={weight:g} decoding.length_candidates={count}"
    print(f"best: {options}")


if __name__ == "__main__":
    run_module(main)
