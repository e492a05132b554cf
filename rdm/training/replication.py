"""Data parallelism with whole replicas (DDP): every device keeps all weights and gets a part of each batch."""

from datetime import timedelta

from pytorch_lightning.strategies import DDPStrategy


class Replicated(DDPStrategy):
    """Lightning's ``ddp`` strategy with a timeout that a configuration can set.

    Args:
        timeout_minutes: how long a rank waits for the others before it ends with an error.
    """

    def __init__(self, timeout_minutes: float = 30) -> None:
        super().__init__(timeout=timedelta(minutes=timeout_minutes))
