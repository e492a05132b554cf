"""``python -m tests.chaos``: train, kill -9 over and over, resume, and compare with a run that nobody touched.

A single process is killed at random moments and, by patches made in it before it starts, in the middle of writing a
checkpoint and of preparing data. Of two DDP processes one is killed; the other has to end by itself.
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

import rdm.runs
import rdm.training.sampling
import rdm.training.saving
from rdm.data.tokenizer import Tokenizer
from rdm.training.checkpoints import AtomicCheckpointIO
from tests import scripts
from tests.same import assert_same_run

LIMIT = 120  # seconds for anything; what takes longer hangs
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
    """Stop in the ``call``-th call of ``holder.name``: before it has done anything, or when it is done."""

    def patch(stop: Callable[[], None]) -> None:
        real, calls = getattr(holder, name), Counter[str]()

        def patched(*arguments: Any, **options: Any) -> Any:
            calls["so far"] += 1
            if calls["so far"] == call and not after:
                stop()
            result = real(*arguments, **options)
            if calls["so far"] == call and after:
                stop()
            return result

        setattr(holder, name, patched)

    return patch


def within(holder: Any, name: str, call: int, inner: Patch) -> Patch:
    """Make another patch only in the ``call``-th call of ``holder.name``."""
    outer = interrupt(holder, name, call)
    return lambda stop: outer(lambda: inner(stop))


def half_a_checkpoint(call: int) -> Patch:
    """Stop when half the bytes of a checkpoint are on disk."""

    def patch(stop: Callable[[], None]) -> None:
        real, calls = torch.save, Counter[str]()

        def save(content: Any, stream: Any) -> None:
            calls["so far"] += 1
            buffer = io.BytesIO()
            real(content, buffer)
            whole = buffer.getvalue()
            stream.write(whole[: len(whole) // 2])
            if calls["so far"] == call:
                stream.flush()
                stop()
            stream.write(whole[len(whole) // 2 :])

        torch.save = save

    return patch


def aimed(chance: random.Random) -> dict[str, list[Patch]]:
    """Where it hurts most; which of the calls is up to chance."""
    call = partial(chance.randint, 1, 3)
    return {
        "while preparing data": [interrupt(np, "save", call(), after=True), interrupt(Tokenizer, "save", 1)],
        "while writing a checkpoint": [
            half_a_checkpoint(call()),
            # In the first the content gets to the disk, in the second the name.
            within(AtomicCheckpointIO, "save_checkpoint", call(), interrupt(os, "fsync", chance.randint(1, 2))),
            interrupt(rdm.training.saving, "point", call()),
            interrupt(rdm.training.saving, "point", call(), after=True),
        ],
    }


class Attempt:
    """A process that trains in ``folder``, or goes on with what is there."""

    resumed = 0

    def __init__(self, folder: Path, *overrides: str, patch: Patch | None = None) -> None:
        Attempt.resumed += folder.exists() and not rdm.runs.Run(folder).finished
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
                    "stdin": "/dev/null",
                    "stdout": str(self.log),
                    "stderr": str(self.log),
                    "environment": {},
                }
            )
        os.close(here)

    def wait_for_stop(self) -> bool:
        """Until the patch has stopped it; False if it ended before."""
        ready, _, _ = select.select([self.reached], [], [], LIMIT)
        return bool(ready and os.read(self.reached, 1))

    def ended(self) -> bool:
        """Whether it has an exit code."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def wait(self, seconds: float = LIMIT) -> bool:
        """Until it has ended; False if it goes on for longer."""
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
        code = os.waitstatus_to_exitcode(status)  # it may have come to its end this very moment
        assert code in (0, -signal.SIGKILL), f"exit code {code}\n{self.log.read_text()}"

    def ranks(self) -> list[int]:
        """Both, as soon as they are there; none if it ended before."""
        until = time.monotonic() + LIMIT
        while not self.ended():
            assert time.monotonic() < until, f"no two ranks\n{self.log.read_text()}"
            pids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            if len(pids) == 2:
                return [int(pid) for pid in pids]
            time.sleep(0.01)
        return []


def single(root: Path, kills: int, chance: random.Random, counts: Counter[str]) -> None:
    """Chains of kills, an ending each, until there were enough."""
    began = time.monotonic()
    Attempt(root / "untouched", f"data.cache={root / 'cache'}").finish()
    usual = time.monotonic() - began
    while counts["kills"] < kills:
        folder = root / f"killed{counts['bit-equal endings']}"
        cache = f"data.cache={folder}.cache"  # prepared anew
        preparing, *others = [(where, chance.choice(patches)) for where, patches in aimed(chance).items()]
        others += [("at a random moment", None)] * 2
        if counts["kills"]:  # in the order of the first chain there are steps left for whatever is aimed at
            chance.shuffle(others)
        for where, patch in (preparing, *others):  # what is prepared is not prepared again
            attempt = Attempt(folder, cache, patch=patch)
            going_on = attempt.wait_for_stop() if patch else not attempt.wait(chance.uniform(0, usual))
            if not going_on:
                attempt.finish()
                continue
            attempt.kill()
            counts.update(["kills", f"  {where}"])
        Attempt(folder, cache).finish()
        compare(root / "untouched", folder, counts)
    missed = [where for where in aimed(chance) if not counts[f"  {where}"]]
    assert not missed or not kills, f"never killed {' nor '.join(missed)}"


def killed(pid: int) -> bool:
    """Kill a process; False if it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def compare(untouched: Path, folder: Path, counts: Counter[str]) -> None:
    assert rdm.runs.Run(folder).finished
    assert_same_run(untouched, folder)
    assert not list(folder.rglob("*.partial"))
    counts["bit-equal endings"] += 1
    shutil.rmtree(folder)
    print(f"{counts['kills']} kills, {counts['bit-equal endings']} bit-equal endings", flush=True)


def ddp(root: Path, kills: int, chance: random.Random, counts: Counter[str]) -> None:
    """One of two ranks is killed; the other has to be gone soon after. Chains as above."""
    overrides = ["trainer=ddp_cpu", f"data.cache={root / 'cache'}"]
    began = time.monotonic()
    Attempt(root / "untouched_ddp", *overrides).finish()
    usual = time.monotonic() - began
    while counts["ranks killed"] < kills:
        folder = root / f"killed_ddp{counts['ranks killed']}"
        for _ in range(3):
            attempt, victim = Attempt(folder, *overrides), counts["ranks killed"] % 2
            ranks = attempt.ranks()
            if attempt.wait(chance.uniform(0, 0.7 * usual)) or not killed(ranks[victim]):
                attempt.finish()  # it came to its end before
                break
            began = time.monotonic()
            attempt.wait()
            if attempt.code == 0 and rdm.runs.Run(folder).finished:
                attempt.finish()  # the rank had come to its end, but nobody had asked for its exit code
                break
            assert attempt.code not in (None, 0), f"exit code {attempt.code}\n{attempt.log.read_text()}"
            assert not any(Path(f"/proc/{pid}").exists() for pid in ranks), "a rank goes on alone"
            os.close(attempt.reached)
            counts["ranks killed"] += 1
            print(f"rank {victim} killed: all ended after {time.monotonic() - began:.1f} s", flush=True)
        Attempt(folder, *overrides).finish()
        compare(root / "untouched_ddp", folder, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), Counter[str]()
    root = Path(mkdtemp())  # not one that cleans up after itself: every child would
    single(root, options.kills, chance, counts)
    ddp(root, options.ranks, chance, counts)
    shutil.rmtree(root)
    counts["resumes"] = Attempt.resumed
    for what, count in counts.items():
        print(f"{count:>4} {what}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.path.insert(0, str(scripts.ROOT))
    os.chdir(scripts.ROOT)
    main()
