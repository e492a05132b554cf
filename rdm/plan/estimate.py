"""The plan of a training run, computed from its configuration."""

from collections import Counter

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from rdm.app.targets import get_class_of
from rdm.bench.inputs import random_batch
from rdm.errors import require
from rdm.plan.counting import count_parameter_memory, count_step, fake_parameters
from rdm.plan.hardware import ThisMachine
from rdm.plan.report import Plan
from rdm.training.optim import as_optimization
from rdm.vocab import Vocab

DEFAULT_LENGTH = 32  # tokens of a sentence
MINIMUM = {
    "length": 3,  # <bos>, a word and <eos>
    "vocabulary": 6,  # one word beside the special symbols
    "trainer.devices": 1,
    "trainer.num_nodes": 1,
    "trainer.accumulate_grad_batches": 1,
}
COUNTED_SENTENCES = 64  # the cost is linear in the sentences; counting more takes longer


def make_plan(config: DictConfig) -> Plan:
    """Return the plan of a checked configuration (``conf/plan.yaml``)."""
    packed = "length" in config.data  # windows of text without a source
    longest = config.model.max_length + (0 if packed else 2)  # <bos> and <eos>
    config.length = min(DEFAULT_LENGTH, longest) if config.length is None else config.length
    for key, minimum in MINIMUM.items():
        value = OmegaConf.select(config, key)
        require(type(value) is int and value >= minimum, f"{key} must be a number of at least {minimum}, got {value}")
    limit = f"the {longest} tokens that a model with max_length={config.model.max_length} takes"
    require(config.length <= longest, f"length={config.length} is more than {limit}")
    require(bool(config.data.max_sentences or config.data.max_tokens), "set data.max_tokens or data.max_sentences")
    trainer, vocab = config.trainer, Vocab(config.vocabulary)
    devices = trainer.devices * trainer.num_nodes
    shared = devices > 1 and issubclass(get_class_of(config.hardware) or object, ThisMachine)
    require(not shared, "hardware=this_machine is one device, whose processes share its rate: use trainer.devices=1")
    parts = devices * trainer.accumulate_grad_batches
    sentences = config.data.max_sentences or config.data.max_tokens // config.length
    require(sentences >= parts, f"a step has {sentences} sentences, too few for {parts} micro-batches")
    config.vocab = {**config.vocab, "size": vocab.size}
    with fake_parameters():
        system = instantiate(config.system)
    system.fit_to(lambda: torch.ones(vocab.size, dtype=torch.long))
    counted = min(sentences // parts, COUNTED_SENTENCES)
    batch = random_batch(vocab.size, counted, config.length, with_source=not packed)
    cost = count_step(system, batch, vocab, trainer.precision)
    optimization = as_optimization(instantiate(config.optimizer))
    sizes = count_parameter_memory(system, optimization, bool(config.callbacks.ema))
    sharded = is_sharded(get_class_of(trainer.strategy))
    return Plan(
        hardware=instantiate(config.hardware),
        precision=trainer.precision,
        steps=trainer.max_steps,
        devices=devices,
        micro_batches=trainer.accumulate_grad_batches,
        sentences=sentences,
        length=config.length,
        examples=config.examples and min(config.examples, config.data.limit or config.examples),
        parameters=sum(parameter.numel() for parameter in system.parameters()),
        embedding=sum(parameter.numel() for parameter in system.parameters() if vocab.size in parameter.shape),
        memory={
            **{use: size // devices if sharded else size for use, size in sizes.items()},
            "activations": cost.activations * (sentences // parts) // counted,
        },
        flops=Counter({part: count * sentences // counted for part, count in cost.flops.items()}),
    )


def is_sharded(strategy: type | None) -> bool:
    """Whether a strategy, None for one that Lightning knows by name, divides the parameters among devices."""
    if strategy is None:
        return False
    from pytorch_lightning.strategies import ModelParallelStrategy  # takes seconds to import

    return issubclass(strategy, ModelParallelStrategy)
