"""Opening a trained model, from Python or as the scripts are configured."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from rdm.app.hub_models import split_id
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
    revision: str | None = None,
) -> Model:
    """Load a trained model.

    Nothing in the folder is executed: its configuration may name classes of this package only, and of those in
    ``trust``. A model may be used by several threads at once.

    Args:
        path: a run folder, a checkpoint file in one, an exported folder, or the id of a model on the Hub,
            ``user/name`` or ``user/name@revision``. What exists as a path is not looked for on the Hub.
        average: number of last checkpoints whose EMA weights are averaged; not for exported models.
        best: whether to take the checkpoint that ``train.py best=<metric>`` selected instead of the newest.
        device: ``auto`` is a GPU if there is one.
        int8: whether to compute linear layers in 8-bit integers, on a CPU.
        trust: packages outside ``rdm`` whose classes the configuration may name; their code is run.
        revision: branch, tag or commit of a model on the Hub; None is its main branch.
    """
    name = None if path is None else str(path)
    if revision is not None:
        on_hub = name is not None and split_id(name) is not None and not Path(name).exists()
        require(on_hub, f"revision={revision} is for the id of a model on the Hub, user/name; got {name}")
        name = f"{name}@{revision}"
    return load_run(RunFolder.open(name, trust=trusted_packages(trust)), average, best, device, int8)


def load_run(run: RunFolder, average: int = 1, best: bool = False, device: str = "auto", int8: bool = False) -> Model:
    """Load the model of a folder; see :func:`load`."""
    if best:
        require(average == 1, f"best=true selects one checkpoint: leave out average={average}")
        run = run.at_best()
    configuration = stamped(run.folder / "config.yaml")
    system, cost = load_system(run, stamped(*run.checkpoints(average)), configuration)
    codec = load_codec(run, configuration + stamped(run.folder / "codec.json", run.folder / "tokenizer.json"))
    system = move(system, device)
    if int8:
        kind = next(system.parameters()).device.type
        require(kind == "cpu", f"int8=true works on a CPU only, and the device is {kind}: add device=cpu")
        system = in_int8(system)
    return Model(run, system, codec, cost, int8, run.average if run.exported else average)


def load_configured(config: DictConfig) -> Model:
    """The model that the configuration of evaluate.py or generate.py names."""
    options = {key: config[key] for key in ("average", "best", "device", "int8", "trust")}
    return load(config.ckpt, **options)


def load_teacher(config: DictConfig, model: Model) -> Model | None:
    """The model that ``rescore=<run>`` names, ``model`` itself for ``rescore=self``, or None."""
    if config.rescore is None:
        return None
    if config.rescore == "self":
        return model
    run = RunFolder.open(config.rescore, key="rescore", trust=trusted_packages(config.trust))
    return load_run(run, device=config.device)
