"""Options of batching and of the data cache."""

from dataclasses import dataclass

from rdm.errors import require


@dataclass(frozen=True)
class Loading:
    """How text becomes batches.

    Args:
        max_tokens, max_sentences: size of an optimiser step, divided by devices and accumulated batches; see
            :class:`~rdm.data.length_batches.LengthBatches`.
        eval_sentences: sentences in a validation or test batch.
        pad_to_multiple: batches of sentences are padded to a multiple of this many tokens.
        seed: seed of the shuffling.
        num_workers: processes that build batches; 0 builds them in the training process.
        cache: folder of encoded text and tokenizers.
    """

    max_tokens: int | None = 4096
    max_sentences: int | None = None
    eval_sentences: int = 100
    pad_to_multiple: int = 1
    seed: int = 0
    num_workers: int = 0
    cache: str = "data/cache"

    def __post_init__(self) -> None:
        multiple = self.pad_to_multiple
        require(multiple >= 1, f"data.pad_to_multiple must be at least 1, got {multiple}")
        require(self.num_workers >= 0, f"data.num_workers must be 0 or above, got {self.num_workers}")
        require(
            self.eval_sentences >= 1,
            f"data.module.loading.eval_sentences must be at least 1, got {self.eval_sentences}",
        )


def divide_budget(limit: int | None, parts: int, key: str) -> int | None:
    """Return the share of each of ``parts`` batches in the budget ``limit`` of a step; None is no limit."""
    require(limit is None or limit >= parts, f"{key}={limit} is too little for {parts} batches (devices, accumulation)")
    return None if limit is None else limit // parts
