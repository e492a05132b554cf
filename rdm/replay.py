"""``python -m rdm.replay outputs/<run>/not_finite/step_<n>.pt``: repeat a non-finite training step.

The file holds the weights before the step, and every micro-batch with the seeds of its noise and dropout. Printed are
the terms of the loss, divided as in training, and the parameters whose gradient is not finite.
"""

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from rdm.app.arguments import Parser
from rdm.app.run_folder import RunFolder
from rdm.app.scripts import run_module
from rdm.app.targets import build
from rdm.data.batch import Batch
from rdm.errors import require
from rdm.systems.base import System
from rdm.training.guard import SavedMicroBatch, load_step
from rdm.training.module import combine, seed_all

PRECISIONS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32-true": torch.float32}


def step_counts(parts: list[SavedMicroBatch]) -> dict[str, Tensor]:
    """Return the denominators of the loss: the sum over ranks; all micro-batches of a rank hold those of its step."""
    ranks = list({part["rank"]: part["counts"] for part in parts}.values())
    return {name: torch.stack([counts[name] for counts in ranks]).sum() for name in ranks[0]}


def replay(
    system: System, part: SavedMicroBatch, counts: dict[str, Tensor], precision: torch.dtype
) -> tuple[dict[str, float], list[str]]:
    """Return the loss of a micro-batch with its terms, and the names of parameters with a non-finite gradient."""
    device = next(system.parameters()).device
    seed_all(part["seeds"]["dropout"])
    batch = Batch(part["source"].to(device), part["target"].to(device), part["ids"], part["counts"])
    with torch.autocast(device.type, precision, enabled=precision != torch.float32):
        terms = system.loss(batch, torch.Generator(device).manual_seed(part["seeds"]["noise"]))
        means = {term.name: term.total / counts[term.unit].to(device) for term in terms}
        loss = combine(terms, means)
    system.zero_grad()
    loss.backward()
    wrong = [name for name, p in system.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    return {name: value.item() for name, value in {"loss": loss, **means}.items()}, wrong


def main() -> None:
    parser = Parser(prog="python -m rdm.replay", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    saved = load_step(file)
    run = RunFolder.open(str(file.parent.parent))
    precision = PRECISIONS[str(run.full_config.trainer.precision)]
    device = saved["device"]
    require(device == "cpu" or torch.cuda.is_available(), f"the step ran on {device} and can only be repeated there")
    system = build(run.config.system, "system", System)
    system.load_state_dict(saved["weights"])
    system.to(device).train()
    counts, wrong = step_counts(saved["parts"]), dict[str, None]()
    table = Table(title=f"Step {saved['step']}")
    for number, part in enumerate(saved["parts"]):
        values, parameters = replay(system, part, counts, precision)
        wrong |= dict.fromkeys(parameters)
        if number == 0:
            for column in ("rank", *values, "bad gradients", "examples"):
                table.add_column(column)
        ids = " ".join(map(str, part["ids"].tolist()))
        table.add_row(str(part["rank"]), *(f"{value:.6g}" for value in values.values()), str(len(parameters)), ids)
    console = Console(soft_wrap=True)
    console.print(table)
    console.print("Gradients that are not finite:", ", ".join(wrong) or "none", markup=False)


if __name__ == "__main__":
    run_module(main)
