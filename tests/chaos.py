"""``python -m tests.chaos``: train, kill -9 repeatedly, resume, and compare with an uninterrupted run.

A single process is killed at random times and, by patches applied before it starts, while it writes a checkpoint and
while it prepares data. Of two DDP ranks one is killed; the other must end by itself.
"""

import argparse
import io
import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

import rdm.training.sampling
import rdm.training.saving
from rdm.app.run_folder import RunFolder
from rdm.data.tokenizer import Tokenizer
from rdm.training.checkpoint_io import AtomicCheckpointIO
from tests import scripts
from tests.same import assert_same_run

LIMIT = 120  # seconds after which a process is considered hanging
TINY = [
    "data.corpus.train_size=100",
    "data.corpus.valid_size=8",
    "data.corpus.test_size=8",
    "data.max_tokens=256",
    "model.dim=16",
    "model.hidden=16",
    "model.dropout=0.1",
    "decoding.steps=2",
    "trainer.max_steps=24",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=1",
    "+trainer.enable_progress_bar=false",
    "callbacks.progress=null",
    "resume=auto",
]

Patch = Callable[[Callable[[], None]], None]


def interrupt(holder: Any, name: str, call: int, after: bool = False) -> Patch:
    """Stop in the ``call``-th call of ``holder.name``, before or after the original function runs."""

    def patch(stop: Callable[[], None]) -> None:
        real, calls = getattr(holder, name), Counter[str]()

        def patched(*arguments: Any, **options: Any) -> Any:
            calls["count"] += 1
            if calls["count"] == call and not after:
                stop()
            result = real(*arguments, **options)
            if calls["count"] == call and after:
                stop()
            return result

        setattr(holder, name, patched)

    return patch


def within(holder: Any, name: str, call: int, inner: Patch) -> Patch:
    """Apply another patch in the ``call``-th call of ``holder.name`` only."""
    outer = interrupt(holder, name, call)
    return lambda stop: outer(lambda: inner(stop))


def half_a_checkpoint(call: int) -> Patch:
    """Stop when half of a checkpoint is written."""

    def patch(stop: Callable[[], None]) -> None:
        real, calls = torch.save, Counter[str]()

        def save(content: Any, stream: Any) -> None:
            calls["count"] += 1
            buffer = io.BytesIO()
            real(content, buffer)
            whole = buffer.getvalue()
            stream.write(whole[: len(whole) // 2])
            if calls["count"] == call:
                stream.flush()
                stop()
            stream.write(whole[len(whole) // 2 :])

        torch.save = save

    return patch


def critical_points(rng: random.Random) -> dict[str, list[Patch]]:
    """Return patches that stop at critical points, in a random call of each function."""
    call = partial(rng.randint, 1, 3)
    return {
        "while preparing data": [interrupt(np, "save", call(), after=True), interrupt(Tokenizer, "save", 1)],
        "while writing a checkpoint": [
            half_a_checkpoint(call()),
            # The first fsync writes the content, the second the name.
            within(AtomicCheckpointIO, "save_checkpoint", call(), interrupt(os, "fsync", rng.randint(1, 2))),
            interrupt(rdm.training.saving, "replace_symlink", call()),
            interrupt(rdm.training.saving, "replace_symlink", call(), after=True),
        ],
    }


class Attempt:
    """A process that trains in ``folder``, or resumes the run in it."""

    resumed = 0

    def __init__(self, folder: Path, *overrides: str, patch: Patch | None = None) -> None:
        Attempt.resumed += folder.exists() and not RunFolder(folder).finished
        self.log = folder.with_name(f"{folder.name}.log")
        self.code: int | None = None
        self.reached, here = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if patch is not None:
                patch(lambda: (os.write(here, b"!"), time.sleep(LIMIT))[1])
            arguments = ["train.py", *TINY, f"hydra.run.dir={folder}", *overrides]
            scripts._run(
                {
                    "arguments": arguments,
                    "folder": str(scripts.ROOT),
                    "stdin": "/dev/null",
                    "stdout": str(self.log),
                    "stderr": str(self.log),
                    "environment": {},
                }
            )
        os.close(here)

    def wait_for_stop(self) -> bool:
        """Wait until the patch has stopped the process; False if it ended before."""
        ready, _, _ = select.select([self.reached], [], [], LIMIT)
        return bool(ready and os.read(self.reached, 1))

    def ended(self) -> bool:
        """Return whether the process has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def wait(self, seconds: float = LIMIT) -> bool:
        """Wait until the process has ended; False if it takes longer."""
        until = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.01)
        return self.ended()

    def finish(self) -> None:
        self.wait()
        os.close(self.reached)
        assert self.code == 0, f"exit code {self.code}\n{self.log.read_text()}"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.reached)
        code = os.waitstatus_to_exitcode(status)  # it may have finished just before
        assert code in (0, -signal.SIGKILL), f"exit code {code}\n{self.log.read_text()}"

    def ranks(self) -> list[int]:
        """Return the ids of both rank processes once they exist; none if the run ended before."""
        until = time.monotonic() + LIMIT
        while not self.ended():
            assert time.monotonic() < until, f"no two ranks\n{self.log.read_text()}"
            pids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            if len(pids) == 2:
                return [int(pid) for pid in pids]
            time.sleep(0.01)
        return []


def kill_single_process(root: Path, kills: int, rng: random.Random, counts: Counter[str]) -> None:
    """Kill and resume a run several times, let it finish and compare it; repeat until ``kills`` is reached."""
    start = time.monotonic()
    Attempt(root / "uninterrupted", f"data.cache={root / 'cache'}").finish()
    usual_seconds = time.monotonic() - start
    while counts["kills"] < kills:
        folder = root / f"killed{counts['bit-equal results']}"
        cache = f"data.cache={folder}.cache"  # empty, so that data is prepared again
        preparing, *others = [(point, rng.choice(patches)) for point, patches in critical_points(rng).items()]
        others += [("at a random moment", None)] * 2
        if counts["kills"]:  # the order of the first run leaves steps for every critical point
            rng.shuffle(others)
        for point, patch in (preparing, *others):  # first, because prepared data is not prepared again
            attempt = Attempt(folder, cache, patch=patch)
            running = attempt.wait_for_stop() if patch else not attempt.wait(rng.uniform(0, usual_seconds))
            if not running:
                attempt.finish()
                continue
            attempt.kill()
            counts.update(["kills", f"  {point}"])
        Attempt(folder, cache).finish()
        compare(root / "uninterrupted", folder, counts)
    missed = [point for point in critical_points(rng) if not counts[f"  {point}"]]
    assert not missed or not kills, f"never killed {' nor '.join(missed)}"


def kill_process(pid: int) -> bool:
    """Kill a process; False if it does not exist."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def compare(uninterrupted: Path, folder: Path, counts: Counter[str]) -> None:
    assert RunFolder(folder).finished
    assert_same_run(uninterrupted, folder)
    assert not list(folder.rglob("*.partial"))
    counts["bit-equal results"] += 1
    shutil.rmtree(folder)
    print(f"{counts['kills']} kills, {counts['bit-equal results']} bit-equal results", flush=True)


def kill_ddp_rank(root: Path, kills: int, rng: random.Random, counts: Counter[str]) -> None:
    """Kill one of two ranks; the other must end soon after. Resume and compare as above."""
    overrides = ["trainer=ddp_cpu", f"data.cache={root / 'cache'}"]
    start = time.monotonic()
    Attempt(root / "uninterrupted_ddp", *overrides).finish()
    usual_seconds = time.monotonic() - start
    while counts["ranks killed"] < kills:
        folder = root / f"killed_ddp{counts['ranks killed']}"
        for _ in range(3):
            attempt, victim = Attempt(folder, *overrides), counts["ranks killed"] % 2
            ranks = attempt.ranks()
            if attempt.wait(rng.uniform(0, 0.7 * usual_seconds)) or not kill_process(ranks[victim]):
                attempt.finish()  # it finished before
                break
            start = time.monotonic()
            attempt.wait()
            if attempt.code == 0 and RunFolder(folder).finished:
                attempt.finish()  # the rank had finished, but its exit code had not been read
                break
            assert attempt.code not in (None, 0), f"exit code {attempt.code}\n{attempt.log.read_text()}"
            assert not any(Path(f"/proc/{pid}").exists() for pid in ranks), "the other rank is still running"
            os.close(attempt.reached)
            counts["ranks killed"] += 1
            print(f"rank {victim} killed: all ended after {time.monotonic() - start:.1f} s", flush=True)
        Attempt(folder, *overrides).finish()
        compare(root / "uninterrupted_ddp", folder, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, counts = random.Random(options.seed), Counter[str]()
    root = Path(mkdtemp())  # not TemporaryDirectory: every forked child would delete it
    kill_single_process(root, options.kills, rng, counts)
    kill_ddp_rank(root, options.ranks, rng, counts)
    shutil.rmtree(root)
    counts["resumes"] = Attempt.resumed
    for what, count in counts.items():
        print(f"{count:>4} {what}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.path.insert(0, str(scripts.ROOT))
    os.chdir(scripts.ROOT)
    main()
