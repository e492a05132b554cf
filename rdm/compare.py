"""``python -m rdm.compare FIRST SECOND``: significance test of two outputs by paired bootstrap over sentences.

FIRST and SECOND are files of ``<run>/hypotheses`` for the same sources; result rows name the file of an evaluation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from rdm.app.arguments import Parser
from rdm.app.scripts import run_module
from rdm.errors import require
from rdm.evaluation.hypotheses import read_hypotheses


def paired_bootstrap(first: Path, second: Path, samples: int = 1000, tokenize: str = "13a") -> dict[str, list[Any]]:
    """Run sacreBLEU's paired bootstrap test for BLEU and chrF.

    Args:
        samples: bootstrap samples.
        tokenize: tokenizer of BLEU; "none" for text that is already tokenised.

    Returns:
        For each metric (with its signature) the result of both files; the second one has the p-value.
    """
    require(samples >= 1, f"--samples must be at least 1, got {samples}")
    lines = [read_hypotheses(file) for file in (first, second)]
    inputs = [[(line["source"], line["references"]) for line in side] for side in lines]
    require(
        inputs[0] == inputs[1],
        f"{first} and {second} have different sources or references; name two outputs for one test set",
    )
    references = [list(stream) for stream in zip(*(line["references"] for line in lines[0]), strict=True)]
    systems: list[tuple[str, Sequence[str]]] = [
        (str(file), [line["hypothesis"] for line in side]) for file, side in zip((first, second), lines, strict=True)
    ]
    metrics = {"BLEU": BLEU(tokenize=tokenize, force=True, references=references), "chrF": CHRF(references=references)}
    signatures, scores = PairedTest(systems, metrics, None, test_type="bs", n_samples=samples)()
    del scores["System"]
    if systems[0][1] == systems[1][1]:
        for _, second_result in scores.values():
            second_result.p_value = 1.0  # type: ignore[union-attr]  # sacreBLEU counts strictly larger differences only, and there are none
    return {f"{name} {signatures[name]}": results for name, results in scores.items()}


def main() -> None:
    """Print the scores of both files and the p-value of their difference."""
    parser = Parser(prog="python -m rdm.compare", description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--samples", type=int, default=1000, help="bootstrap samples")
    parser.add_argument(
        "--tokenize", choices=("13a", "none"), default="13a", help="none: the text is already tokenised"
    )
    arguments = parser.parse_args()
    results = paired_bootstrap(arguments.first, arguments.second, arguments.samples, arguments.tokenize)
    table = Table(caption="p: probability of a difference at least this large if both systems were equally good")
    for column in ("metric", "first", "second", "p"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, (one, two) in results.items():
        table.add_row(name, *(f"{result.score:.2f} (± {result.ci:.2f})" for result in (one, two)), f"{two.p_value:.4f}")
    Console().print(table)


if __name__ == "__main__":
    run_module(main)
