"""The experiments have the sizes and the hyper-parameters of the paper."""

from datetime import timedelta

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from pytorch_lightning.strategies import DDPStrategy

from rdm.app.checks import check_parts, check_task
from rdm.app.schema import check_types
from rdm.training.sharding import Sharded
from tests.configs import CONF, config

EXPERIMENTS = sorted(
    str(file.relative_to(CONF / "experiment").with_suffix("")) for file in (CONF / "experiment").rglob("[!_]*.yaml")
)
MILLIONS = {
    "iwslt14": (37, 40),
    "wmt14": (65, 68),
    "wmt16": (62, 65),
    "qg": (47, 50),
    "qqp": (47, 50),
    "wikitext103": (0.95 * 430, 1.05 * 430),
    "local": (2, 8),
    "smoke": (28, 34),
}


KINDS = {"DiffuSeqDenoiser": (85, 115), "CDCDDenoiser": (85, 130), "GPT2": (120, 130), "GPVAET5": (220, 230)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments(name: str) -> None:
    """Every experiment passes the checks of train.py, trains the system it is named after, and has the right size."""
    composed = config(f"experiment={name}")
    check_task(composed)
    check_types(composed)
    check_parts(composed)
    family, system = name.split("/")
    named = system.removesuffix("_plus").removesuffix("_decoder")
    assert family in ("local", "smoke") or composed.name.removesuffix("_lm") == named
    low, high = KINDS.get(composed.model._target_.rpartition(".")[2], MILLIONS.get(family, (0, 1)))
    low, high = (770, 780) if system == "gpt2_large" else (low, high)
    low, high = (0, 1) if family == "toy" else (low, high)
    pretrained = {"GPT2": 50_260, "GPVAET5": 32_102}.get(composed.model._target_.rpartition(".")[2], 300)
    vocabulary = 300 if family in ("toy", "smoke") else composed.data.tokenizer.get("size", pretrained)
    assert low <= millions(composed, vocabulary) <= high


def test_size_of_the_model_for_the_speed_figure() -> None:
    assert 90 <= millions(config("experiment=qqp/rdm_absorbing", "model=qqp_100m"), 30_522) <= 110


def millions(composed: DictConfig, vocabulary: int) -> float:
    """Parameters of the model in millions, counted on the meta device."""
    composed.vocab.size = vocabulary
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in instantiate(composed.model).parameters()) / 1e6


# dropout, steps, warm-up, tokens or sentences per step, gradient clipping, decoding, Gumbel scale
HYPER_PARAMETERS = {
    "iwslt14/rdm_absorbing": (0.3, 300_000, 30_000, 4_096, None, "rdm_cond", 0.0),
    "wmt14/rdm_multinomial": (0.1, 300_000, 10_000, 131_072, None, "rdm", 0.0),
    "wmt16/rdm_absorbing": (0.3, 120_000, 15_000, 32_768, None, "rdm_gumbel", 1.0),
    "qg/rdm_absorbing": (0.2, 70_000, 10_000, 256, 1.0, "mbr", 5.0),
    "qqp/rdm_multinomial": (0.2, 70_000, 10_000, 256, 1.0, "mbr", 5.0),
}


@pytest.mark.parametrize("name", HYPER_PARAMETERS)
def test_hyper_parameters_are_those_of_the_paper(name: str) -> None:
    composed = config(f"experiment={name}")
    batch = composed.data.max_tokens or composed.data.max_sentences
    assert HYPER_PARAMETERS[name] == (
        composed.model.dropout,
        composed.trainer.max_steps,
        composed.optimizer.schedule.warmup_steps,
        batch,
        composed.trainer.gradient_clip_val,
        composed.decoding.name,
        composed.decoding.transition.gumbel_scale,
    )
    assert (composed.optimizer.lr, composed.optimizer.weight_decay) == (5e-4, 0.01)


@pytest.mark.parametrize("name", ["rdm_absorbing", "multinomial", "ar"])
def test_hyper_parameters_of_wikitext(name: str) -> None:
    composed = config(f"experiment=wikitext103/{name}")
    assert (composed.data.max_sentences, composed.data.length, composed.data.prompt) == (128, 256, 32)
    assert (composed.trainer.max_steps, composed.optimizer.lr, composed.model.max_length) == (100_000, 3e-4, 256)
    assert (composed.decoding.temperature, composed.decoding.top_p) == (1.0, 0.95)
    assert name == "ar" or composed.diffusion.num_steps == 100


def test_several_devices_and_machines() -> None:
    """The tokens per step stay those of the paper; the model can be sharded over all devices."""
    run = ["experiment=wmt14/rdm_absorbing", "trainer.devices=8", "trainer.num_nodes=2"]
    for name in ("ddp", "fsdp"):
        composed = config(*run, f"trainer={name}", "trainer.accumulate_grad_batches=1", "compile=true")
        check_types(composed)
        trainer, step = composed.trainer, composed.data.module.loading.max_tokens
        assert (trainer.devices, trainer.num_nodes, trainer.precision, step) == (8, 2, "bf16-mixed", 131_072)
        assert (composed.optimizer.lr, trainer.max_steps) == (5e-4, 300_000)
    for name, kind in (("ddp", DDPStrategy), ("fsdp", Sharded)):
        strategy = instantiate(config(f"trainer={name}", "trainer.strategy.timeout_minutes=0.5").trainer.strategy)
        assert isinstance(strategy, kind)
        assert strategy._timeout == timedelta(seconds=30)
