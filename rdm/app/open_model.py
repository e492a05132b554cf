"""Opening a trained model, from Python or as the scripts are configured."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from rdm.app.loading import load_codec, load_system, move, stamped
from rdm.app.model import Model
from rdm.app.run_folder import RunFolder
from rdm.app.trust import trusted_packages
from rdm.errors import require
from rdm.models.int8 import in_int8


def load(
    path: str | Path | None,
    *,
    average: int = 1,
    best: bool = False,
    device: str = "auto",
    int8: bool = False,
    trust: str | Sequence[str] | None = None,
) -> Model:
    """Load a trained model.

    Nothing in the folder is executed: its configuration may name classes of this package only, and of those in
    ``trust``. A model may be used by several threads at once.

    Args:
        path: a run folder, or a checkpoint file in one.
        average: number of last checkpoints whose EMA weights are averaged.
        best: whether to take the checkpoint that ``train.py best=<metric>`` selected instead of the newest.
        device: ``auto`` is a GPU if there is one.
        int8: whether to compute linear layers in 8-bit integers, on a CPU.
        trust: packages outside ``rdm`` whose classes the configuration may name; their code is run.
    """
    run = RunFolder.open(None if path is None else str(path), trust=trusted_packages(trust))
    if best:
        require(average == 1, f"best=true selects one checkpoint: leave out average={average}")
        run = run.at_best()
    system, cost = load_system(run, stamped(*run.checkpoints(average)))
    files = (run.folder / name for name in ("config.yaml", "codec.json", "tokenizer.json"))
    codec = load_codec(run, stamped(*files))
    system = move(system, device)
    if int8:
        kind = next(system.parameters()).device.type
        require(kind == "cpu", f"int8=true works on a CPU only, and the device is {kind}: add device=cpu")
        system = in_int8(system)
    return Model(run, system, codec, cost, int8)


def load_configured(config: DictConfig) -> Model:
    """The model that the configuration of evaluate.py or generate.py names."""
    options = {key: config[key] for key in ("average", "best", "device", "int8", "trust")}
    return load(config.ckpt, **options)


def load_teacher(config: DictConfig) -> Model | None:
    """The model that ``rescore=<run>`` names, or None."""
    if config.rescore is None:
        return None
    require(Path(config.rescore).exists(), f"rescore: {config.rescore} does not exist")
    return load(config.rescore, device=config.device, trust=config.trust)
