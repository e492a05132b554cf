"""CPU time of decoding and where it goes: ``python scripts/decoding_profile.py --model iwslt14``.

RDM-absorbing with random weights, 10,152 words, sentences of 24 tokens, 5 length candidates, 10 iterations. Variants
are measured alternately in one run, and the ratio to the first is the median over the repetitions:

- ``float32``, ``int8``, ``bf16``: as shipped;
- ``fewer positions``: float32, without the output at denoised tokens once all tokens of a row are chosen, where their
  score decides nothing. Its texts must be those of ``float32``.

Then the float32 variant is profiled.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from rdm.bench.cases import FixedLengths, build
from rdm.bench.inputs import random_batch
from rdm.decoding.routing import Unconditional
from rdm.decoding.transition import Progress
from rdm.models.int8 import in_int8
from rdm.training.setup import computes_in_bf16

VOCABULARY, LENGTH = 10_152, 24
PARTS = {
    "aten::scaled_dot_product_attention": "attention",
    "aten::argmax": "argmax and scores",
    "aten::cross_entropy_loss": "argmax and scores",
    "aten::layer_norm": "layer norm",
}


def deciding(router: Unconditional, progress: Progress) -> Tensor:
    """Return the positions ``[R, N]`` whose score decides something."""
    ranked = progress.count < progress.free.sum(1)
    return progress.noisy | (progress.free & ranked[:, None])


@contextmanager
def fewer_positions() -> Iterator[None]:
    """Ask the network only where its output decides something."""
    Unconditional.active = deciding  # type: ignore[method-assign]
    yield
    del Unconditional.active  # type: ignore[attr-defined]


def part_of(name: str, shapes: list[list[int]]) -> str | None:
    """Return the part of decoding that an operation belongs to; None for those inside another or unimportant."""
    if name == "aten::linear":
        return "projection to the vocabulary" if shapes[1][0] == VOCABULARY else "linear layers"
    return PARTS.get(name)


def print_parts(decode: Callable[[], Tensor]) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        decode()
    total = sum(event.self_cpu_time_total for event in profiled.events())
    parts: Counter[str] = Counter()
    for event in profiled.events():
        part = part_of(event.name, event.input_shapes)
        if part is not None:
            parts[part] += event.cpu_time_total
    parts["other (copies, residuals, embeddings, routing)"] = total - sum(parts.values())
    print("\n| part | share |\n| --- | ---: |")
    for part, share in parts.most_common():
        print(f"| {part} | {share / total:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="iwslt14")
    parser.add_argument("--sources", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    system, sampler = build(VOCABULARY, "diffusion=rdm_absorbing", "decoding=rdm", f"model={options.model}")
    system.eval()
    quantised = in_int8(system)
    sampler.length_choice = FixedLengths(LENGTH - 2)
    source = random_batch(VOCABULARY, options.sources, LENGTH).source

    def fewer() -> Tensor:
        with fewer_positions():
            return system.generate(source, sampler).tokens

    def in_bf16() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return system.generate(source, sampler).tokens

    variants: dict[str, Callable[[], Tensor]] = {
        "float32": lambda: system.generate(source, sampler).tokens,
        "fewer positions": fewer,
        "int8": lambda: quantised.generate(source, sampler).tokens,
    }
    if computes_in_bf16():
        variants["bf16"] = in_bf16
    first = {name: decode() for name, decode in variants.items()}  # warm-up
    if not torch.equal(first["float32"], first["fewer positions"]):
        raise SystemExit("the outputs differ")
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(options.repetitions):
        for name, decode in variants.items():
            start = time.process_time()
            decode()
            seconds[name].append(time.process_time() - start)
    print(f"{options.model}, {options.sources} sources\n\n| | CPU seconds | times as fast |\n| --- | ---: | ---: |")
    for name, times in seconds.items():
        ratio = median(base / own for base, own in zip(seconds["float32"], times, strict=True))
        print(f"| {name} | {median(times):.2f} | {ratio:.2f} |")
    print_parts(variants["float32"])


if __name__ == "__main__":
    main()
