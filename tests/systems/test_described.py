"""Systems describe all components they are built from."""

from rdm.vocab import Vocab
from tests.builders import tiny_autoregressive, tiny_diffuseq, tiny_system
from tests.language_models import tiny_ar_lm, tiny_lm

VOCAB = Vocab(size=40)


def test_diffusion_describes_its_components() -> None:
    described = tiny_system(VOCAB, "rdm_mixture").describe()
    assert described["process"]["schedule"] == {"class": "Cosine", "num_steps": 20, "s": 0.008}
    assert described["process"]["noise"]["mask_share"] == 0.5
    assert described["copies"] == {"class": "Conditioned", "steps": None}
    assert described["objective"]["reweighting"] == {"class": "Linear"}
    assert (described["length_factor"], described["vocab"]["size"]) == (0.01, 40)
    assert described["denoiser"]["time"] == {"class": "TimeEmbedding", "dim": 32}
    assert described["denoiser"]["network"]["max_length"] == 31


def test_other_systems_describe_their_networks() -> None:
    assert tiny_autoregressive(VOCAB).describe()["decoder"]["network"]["class"] == "EncoderDecoder"
    assert tiny_diffuseq(VOCAB).describe()["denoiser"]["embedding"] == 16
    assert tiny_lm(VOCAB, max_tokens=7).describe()["max_tokens"] == 7
    assert tiny_ar_lm(VOCAB, 0.1).describe()["label_smoothing"] == 0.1
