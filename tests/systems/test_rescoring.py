"""Selection by a teacher: its mean log-probability, through ids or through text."""

import pytest
import torch

from rdm.data.codec import PairCodec
from rdm.data.pairs import PairsDataModule
from rdm.data.tokenizer import BytePairs
from rdm.decoding.candidates import CandidateSet
from rdm.decoding.easy_first import EasyFirst
from rdm.decoding.euler import EulerSampler
from rdm.describe import with_argument
from rdm.systems.rescoring import TeacherScore
from tests.builders import sampler, tiny_autoregressive, tiny_cdcd, tiny_disco, tiny_system, toy_data


@pytest.fixture(scope="module")
def data() -> PairsDataModule:
    return toy_data(train=16)


def candidate_set(data: PairsDataModule) -> tuple[CandidateSet, list[str], list[list[str]]]:
    """Three targets of other sources as candidates of each of two sources."""
    sources, targets = data.corpus.read("train")
    groups = [targets[:3], targets[3:6]]
    rows = data.codec.encode_targets([text for group in groups for text in group])
    tokens = data.codec.batch(rows, rows).target.unflatten(0, (2, 3))
    source = data.codec.sources(data.codec.encode_sources(sources[:2]))
    return CandidateSet(source, tokens, data.vocab.is_ordinary(tokens), torch.zeros(2, 3)), sources[:2], groups


@pytest.mark.parametrize("same", [True, False], ids=["ids", "text"])
def test_scores_equal_the_likelihood_of_each_pair(same: bool, data: PairsDataModule) -> None:
    torch.manual_seed(0)
    candidates, sources, groups = candidate_set(data)
    codec = data.codec if same else PairCodec(BytePairs(size=300)([*sources, *groups[0], *groups[1]]), 63)
    teacher = tiny_autoregressive(codec.vocab, max_length=63).eval()
    selection = TeacherScore(teacher, codec, data.codec, {"run": "teacher"})
    assert selection.same_tokenizer is same
    scores = selection.scores(candidates)
    for i, source in enumerate(sources):
        for j, target in enumerate(groups[i]):
            batch = codec.batch(codec.encode_sources([source]), codec.encode_targets([target]))
            exact = teacher.likelihood(batch)
            assert scores[i, j].item() == pytest.approx(-(exact.nats / exact.tokens).item(), abs=1e-4)
    assert torch.equal(selection(candidates), scores.argmax(1))


def test_candidates_too_long_for_the_teacher_are_not_chosen(data: PairsDataModule) -> None:
    torch.manual_seed(0)
    candidates, _, groups = candidate_set(data)
    lengths = torch.tensor([[len(row) for row in data.codec.encode_targets(group)] for group in groups])
    limit = int(lengths.min())
    teacher = tiny_autoregressive(data.vocab).eval()
    scores = TeacherScore(teacher, PairCodec(data.codec.tokenizer, limit), data.codec, {}).scores(candidates)
    assert torch.equal(scores.isfinite(), lengths <= limit)


STUDENTS = {
    "cmlm": (lambda vocab: tiny_system(vocab, "cmlm"), sampler("cmlm", candidates=3)),
    "disco": (tiny_disco, EasyFirst("easy_first", steps=2, length_candidates=3)),
    "cdcd": (tiny_cdcd, EulerSampler("cdcd", steps=2, samples=3)),
}


@pytest.mark.parametrize("name", STUDENTS)
def test_decoding_with_a_teacher(name: str, data: PairsDataModule) -> None:
    """The teacher chooses among the same candidates; its name is in the settings, and the given decoding unchanged."""
    torch.manual_seed(0)
    make, decoding = STUDENTS[name]
    student = make(data.vocab).eval()
    teacher = TeacherScore(tiny_autoregressive(data.vocab).eval(), data.codec, data.codec, {"run": "a", "step": 6})
    rescored = with_argument(decoding, "selection", teacher)
    assert rescored.describe() == {
        **decoding.describe(),
        "selection": {"class": "TeacherScore", "run": "a", "step": 6},
    }
    assert decoding.selection is not teacher
    source = data.codec.sources(data.questions("test").rows[:4])
    best, own = (student.generate(source, each, torch.Generator().manual_seed(0)) for each in (rescored, decoding))
    assert best.candidates is not None
    assert own.candidates is not None
    assert torch.equal(best.candidates.tokens, own.candidates.tokens)
    ordinary = data.vocab.is_ordinary(best.candidates.tokens)
    candidates = CandidateSet(source, best.candidates.tokens, ordinary, best.candidates.scores)
    assert torch.equal(best.candidates.chosen, teacher.scores(candidates).argmax(1))
