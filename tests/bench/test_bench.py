"""The benchmark measures, prints and draws; stopwatch and peak memory are checked by hand."""

import json
from itertools import count
from pathlib import Path

import pytest
import torch

from rdm.bench import cases, timing
from rdm.bench.__main__ import run, show
from rdm.bench.cases import OFFICIAL, Size
from rdm.bench.figure import draw
from rdm.bench.timing import Measurement, Stopwatch, find_noisy, peak_memory, reset_peak_memory
from rdm.models.int8 import in_int8
from rdm.vocab import Vocab
from tests.builders import tiny_system


@pytest.mark.skipif(not timing.CLEAR.exists(), reason="needs the memory counters of Linux")
def test_freed_memory_does_not_count() -> None:
    """Memory freed by a larger model is not part of the next peak."""
    reset_peak_memory()
    before = peak_memory()
    blocks = [bytearray(50_000) for _ in range(4000)]
    last = blocks.pop()  # on top of the heap, so that the C library does not return the memory below it by itself
    full = peak_memory()
    del blocks
    reset_peak_memory()
    assert full - before > 150
    assert peak_memory() - before < 20
    del last


def measured(name: str, before: float = 100.0, after: float = 100.0) -> Measurement:
    return Measurement("training", name, "target tokens/s", 250.0, 0.1, before, after, None, None)


def test_results_of_a_busy_machine_are_reported() -> None:
    """The rate changed during one case, and was low throughout another."""
    rows = [measured("steady"), measured("changes", 120, 90), measured("close", 110, 90), measured("slow", 75, 75)]
    assert [row.name for row in find_noisy([*rows, measured("last")])] == ["changes", "slow"]
    assert find_noisy(rows[:1]) == []


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios appear for official rates; names are not truncated without a terminal."""
    name = "rdm_multinomial, rdm, pruned after 4, int8"
    show([measured("rdm_absorbing, conditioned"), measured(name)], OFFICIAL)
    page = capsys.readouterr().out
    assert name in page
    line = next(line for line in page.splitlines() if "conditioned" in line)
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["250.00", "2.5000", "2.0", "10%"]
    show([measured(name)], {})
    assert "official" not in capsys.readouterr().out


def test_nested_calls_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    watch = Stopwatch()
    with watch.running():
        now = 1.0
        with watch.running():
            now = 3.0
        now = 4.0
    now = 10.0
    with watch.running():
        now = 11.0
    assert watch.seconds == 5.0
    watch.reset()
    assert watch.seconds == 0.0


def test_output_projection_counts_as_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not a module; also in int8."""
    monkeypatch.setattr(timing.time, "perf_counter", count(0.0).__next__)
    system = tiny_system(Vocab(40)).eval()
    for each in (system, in_int8(system)):
        network, watch = each.denoiser.network, Stopwatch()
        with watch.on_modules():
            network.to_vocabulary(torch.zeros(2, network.dim))
        assert watch.seconds == 1


TINY = Size(
    model="tiny",
    growing="tiny",
    language_model="llama_tiny",
    vocabulary=100,
    repetitions=1,
    sources=1,
    vocabularies=(100,),
    lengths=(),
    batches=(),
    iterations=(2,),
    steps=2,
)


def test_section_is_measured_printed_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "gemm_rate", lambda: 100.0)
    results = run(TINY, only="growth")
    names = [("training by vocabulary", "100"), ("decoding by vocabulary", "100"), ("decoding by iterations", "2")]
    assert [(row.section, row.name) for row in results] == names
    for row in (json.loads(json.dumps(result.row())) for result in results):
        assert row["rate"] > 0
        assert row["per_gflops"] == row["rate"] / row["gflops"] == row["rate"] / 100
        assert row["spread"] >= 0
        assert 0 < row["outside"] < 1
        assert (row["memory"] is None) == (not timing.CLEAR.exists())
    show(results, {})
    page = capsys.readouterr().out
    for section, _ in names:
        assert section in page
    draw(results, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


@pytest.mark.slow
def test_official_rates_belong_to_measured_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all cases can be built."""
    monkeypatch.setattr(cases, "time_action", lambda section, name, *_: (section, name))
    rows = [*cases.training(TINY), *cases.decoding(TINY)]
    assert set(OFFICIAL) < set(rows)
    assert len(set(rows)) == len(rows)
