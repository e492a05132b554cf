"""Wrong uses of the scripts: one line that says what would be right, exit code 2, and nothing half-made left behind."""

import shutil
from pathlib import Path

import pytest

from tests.bad_input import LONG, make
from tests.scripts import ROOT, script
from tests.test_end_to_end import SMALL

PAIRS = ["data=text_pairs", "data.source=de", "data.target=en"]
LIKE_THE_RUN = [override for override in SMALL if override.startswith(("data.", "model."))]

TRAIN: list[tuple[list[str], str]] = [
    # Names.
    (["diffusion=null"], "only a group that is null by default can be null"),
    (["reweighting=foo"], "Available options in 'reweighting': constant linear original"),
    (["model=foo"], "Available options in 'model': base"),
    (["experiment=toy/foo"], "Could not find 'experiment/toy/foo'"),
    (["trainer.max_step=5"], "Could not override 'trainer.max_step'"),
    (["nothing=5"], "Could not override 'nothing'"),
    (["nothing"], "Error parsing override 'nothing' missing EQUAL"),
    (["--config-name=nowhere"], "Cannot find primary config 'nowhere'"),
    (["+decoding.transition.scale=2"], "takes no such value; it takes gumbel_scale"),
    (["model._target_=rdm.models.Missing"], "model._target_: cannot find rdm.models.Missing"),
    (["model._target_=os.nothing"], "cannot find os.nothing: module 'os' has no attribute 'nothing'"),
    # Types.
    (["optimizer.lr=abc"], "optimizer.lr: 'abc' is not a number"),
    (["optimizer.lr="], "optimizer.lr: '' is not a number"),
    (["diffusion.num_steps=1.5"], "diffusion.num_steps: 1.5 is not a whole number"),
    (["data.max_tokens=many"], "data.max_tokens: 'many' is not a whole number"),
    (["model.pre_norm=maybe"], "model.pre_norm: 'maybe' is not true or false"),
    (["seed=abc"], "seed: 'abc' is not a whole number"),
    (["debug=maybe"], "debug: 'maybe' is not true or false"),
    (["decoding.transition=rdm"], "decoding.transition: 'rdm' is not a Transition"),
    # Values.
    (["seed=-1"], "seed must lie between 0 and 4294967295, got -1"),
    (["seed=99999999999999999999"], "seed must lie between 0 and 4294967295"),
    (["decoding.steps=0"], "decoding.steps must be at least 1, got 0"),
    (["decoding.steps=60"], "decoding.steps=60 exceeds diffusion.num_steps=50 (the number of steps"),
    (["decoding.temperature=-1"], "decoding.temperature must be 0 (argmax) or greater"),
    (["decoding.top_p=0"], "decoding.top_p must lie in (0, 1], got 0"),
    (["decoding.length_candidates=1000"], "but there are only 63 lengths"),
    (["decoding=beam"], "decoding=beam is not for diffusion over tokens; try decoding=rdm"),
    (["decoding=jacobi"], "decoding=jacobi needs a causal network, e.g. system=any_order; try decoding=rdm"),
    (["decoding=draft_beam"], "decoding=draft_beam needs a causal network, e.g. system=any_order; try decoding=rdm"),
    (["diffusion.num_steps=0"], "num_steps of the noise schedule must be at least 1, got 0"),
    (["system=diffuseq", "system.process.schedule.num_steps=0"], "num_steps of the noise schedule must be at least 1"),
    (["model.dim=0"], "model.dim must be at least 1, got 0"),
    (["model.decoder_layers=-1"], "model.decoder_layers must be at least 1, got -1"),
    (["model.heads=3"], "model.dim (32) must be a multiple of model.heads (3)"),
    (["model.dropout=2"], "dropout probability has to be between 0 and 1, but got 2"),
    (["model=llama_tiny"], "model: Llama is not a"),
    (["optimizer.lr=nan"], "optimizer.lr must be above 0, got nan"),
    (["optimizer.betas=[0.9]"], "optimizer.betas must be two numbers in [0, 1), got [0.9]"),
    (["optimizer.betas=[2,3]"], "optimizer.betas must be two numbers in [0, 1), got [2, 3]"),
    (["optimizer.schedule.warmup_steps=-1"], "optimizer.schedule.warmup_steps must be 0 or above"),
    (["callbacks.ema.decay=1"], "callbacks.ema.decay must lie in [0, 1), got 1"),
    (["callbacks.guard.skip=-1"], "callbacks.guard.skip must be 0 or above, got -1"),
    (["callbacks.sampling.sentences=0"], "callbacks.sampling.sentences must be at least 1"),
    (["trainer.precision=16-mixed"], "half precision is up to a hundred times slower on this CPU"),
    (["trainer.precision=8"], "trainer.precision: 8 is not one of"),
    (["trainer.devices=0"], "`Trainer(devices=0)` value is not a valid input using cpu accelerator"),
    (["trainer.accelerator=foo"], "invalid accelerator name: `accelerator='foo'`. Available names are"),
    (["trainer.max_steps=-5"], "trainer.max_steps must be a number of steps, or -1 for no limit, got -5"),
    (["system=lm", "decoding.samples=10"], "decoding.samples=10, but open-ended text is decoded once: use 1"),
    (["ckpt={world}/run", "callbacks.ema=null"], "was trained with callbacks.ema; keep it"),
    (["ckpt={world}/run"], "step_0000006.ckpt is at step 6; give a larger trainer.max_steps"),
    (["data=toy_text"], "data=toy_text has no sources: add system=lm or system=ar_lm"),
    (
        ["system=ar", "data=plain_text", "data.train={world}/file"],
        "data=plain_text has no sources: add system=lm or system=ar_lm",
    ),
    (["system=lm", "data=toy_translation"], "data=toy_translation has sources, but this system continues text"),
    (["system=ar_lm", "data=qqp"], "data=qqp has sources, but this system continues text"),
    (["system=cmlm", "diffusion=absorbing"], "diffusion=absorbing is not for the system cmlm: leave one out"),
    (["experiment=toy/rdm_absorbing", "system=cmlm"], "diffusion=rdm_absorbing is not for the system cmlm"),
    (["system=ar", "diffusion=rdm_multinomial"], "diffusion=rdm_multinomial is not for the system ar"),
    (["system=diffuseq", "diffusion=absorbing"], "diffusion=absorbing is not for the system diffuseq"),
    (["system=cmlmc", "diffusion=absorbing"], "diffusion=absorbing is not for the system cmlmc: leave one out"),
    (["system=cmlmc", "decoding.token_cache=2"], "decoding: this network cannot be run on some positions only"),
    (["system=any_order", "decoding=rdm"], "this system predicts masked tokens only, but the decoding asks for others"),
    (["system=any_order", "diffusion.noise.noise_specials=true"], "system=any_order needs masks as noise"),
    (
        ["system=any_order_lm", "decoding=open_ended"],
        "this system predicts masked tokens only, but the decoding asks f",
    ),
    (["system=any_order_lm", "diffusion/noise=uniform"], "system=any_order_lm needs masks as noise"),
    (["system=any_order_lm", "diffusion=rdm_absorbing"], "diffusion=rdm_absorbing is not for the system any_order_lm"),
    (["system=diffuseq", "decoding=rdm"], "system=diffuseq needs decoding=diffuseq or decoding=diffuseq_ddim, not rdm"),
    (["system=levt", "decoding=rdm"], "system=levt needs decoding=levenshtein, not rdm"),
    (["system=cdcd", "reweighting=linear"], "reweighting: the loss of cdcd has no weights"),
    (["system=disco", "decoding.temperature=1"], "Could not override 'decoding.temperature'"),
    (["system=cmlm_smart", "decoding=beam"], "decoding=beam is not for diffusion over tokens"),
    (["system=gpt2", "data=toy_translation", "decoding=rdm"], "decoding=rdm does not fit an autoregressive model"),
    (["system=gpvae_t5", "diffusion=rdm_absorbing"], "diffusion=rdm_absorbing is not for the system gpvae_t5"),
    (["system=ar", "reweighting=linear"], "reweighting: the loss of ar has no weights"),
    (["diffusion=multinomial", "reweighting=linear"], "reweighting: the loss of multinomial has no weights"),
    (["system=lm", "model.max_length=32"], "model.max_length=32 is less than data.length=64, a window of text"),
    (["system=ar_lm", "data.length=65", "model.max_length=64"], "model.max_length=64 is less than data.length=65"),
    (["trainer.val_check_interval=0"], "trainer.val_check_interval must be above 0, got 0"),
    (["data.num_workers=-1"], "data.num_workers must be 0 or above, got -1"),
    (["data.max_tokens=5"], "more than the 5 of a batch (data.max_tokens divided by"),
    (["data.max_tokens=0"], "data.max_tokens=0 is too little for 1 batches"),
    (["data.max_tokens=null"], "set data.max_tokens or data.max_sentences"),
    (["data.corpus.train_size=0"], "every split needs at least one example"),
    # Places.
    (["ckpt=nowhere"], "ckpt: nowhere does not exist"),
    (["ckpt={world}/folder"], "is not a run folder (it has no config.yaml)"),
    (["ckpt={world}/cut_checkpoint/checkpoints/last.ckpt"], "is not a readable checkpoint"),
    (["ckpt={world}/run", "model.dim=64"], "was trained with system.denoiser.length_head.dim=32, but here it is 64"),
    (["ckpt={world}/run", "data.corpus.seed=5"], "is not that of this data; use the data it was trained on"),
    (["data.cache={world}/file"], "choose another folder with data.cache=..."),
    (["hydra.run.dir={world}/file/run"], "{world}/file/run cannot be read or written: Not a directory"),
    # Text.
    (["data=qqp"], "files are expected in data.root=data/qqp, see data/qqp.card.md"),
    (["data=text_pairs", "data.target=en"], "data.source: a value is needed"),
    ([*PAIRS, "data.root={world}/nowhere"], "there is no {world}/nowhere/train.de (nor train.de.gz)"),
    ([*PAIRS, "data.root={world}/uneven"], "has 3 lines, but {world}/uneven/train.en has 2: the lines must be aligned"),
    ([*PAIRS, "data.root={world}/latin"], "{world}/latin/train.de, line 2 is not UTF-8"),
    ([*PAIRS, "data.root={world}/binary"], "{world}/binary/train.de, line 2 is not UTF-8"),
    ([*PAIRS, "data.root={world}/empty"], "{world}/empty/train.de is empty"),
    ([*PAIRS, "data.root={world}/blank"], "no pair of the train split has 1 to 63 tokens on either side"),
    ([*PAIRS, "data.root={world}/hollow"], "line 2 of the valid split has an empty source: correct or remove it"),
    ([*PAIRS, "data.root={world}/long"], "no pair of the train split has 1 to 63 tokens on either side"),
    ([*PAIRS, "data.root={world}/cut_gz"], "{world}/cut_gz/train.de.gz cannot be read"),
    ([*PAIRS, "data.root={world}/uneven", "data.tokenizer.size=10"], "needs at least 261 ids, got 10"),
    (["data=jsonl_pairs", "data.train=nowhere.jsonl"], "there is no nowhere.jsonl"),
    (["data=jsonl_pairs", "data.root={world}/json_cut"], "train.jsonl, line 2 is not JSON"),
    (["data=jsonl_pairs", "data.root={world}/json_key"], "line 1 needs the keys 'src' and 'trg', each with a text"),
    (["data=jsonl_pairs", "data.root={world}/json_list"], "line 1 needs the keys 'src' and 'trg', each with a text"),
    (["data=jsonl_pairs", "data.root={world}/json_number"], "line 1 needs the keys 'src' and 'trg', each with a text"),
    (["data=jsonl_pairs", "data.root={world}/json_surrogate"], "line 1 has an unpaired surrogate"),
    (["data=jsonl_pairs", "data.root={world}/json_deep"], "line 1 is not JSON"),
    (["system=lm", "data=plain_text", "data.first_line='['"], "data.first_line: '[' is not a regular expression"),
]

RUN = "ckpt={world}/run"
EVALUATE: list[tuple[list[str], str]] = [
    ([], "ckpt: name a model"),
    (["ckpt=nowhere"], "ckpt: nowhere does not exist"),
    (["ckpt=[1]"], "ckpt: [1] is not a word or null"),
    (["ckpt=rdm"], "rdm is not a run folder"),
    (["ckpt={world}/no_checkpoint"], "no_checkpoint has no checkpoint yet"),
    (["ckpt={world}/cut_checkpoint"], "is not a readable checkpoint"),
    (["ckpt={world}/empty_checkpoint"], "is not a readable checkpoint"),
    (["ckpt={world}/text_checkpoint"], "is not a readable checkpoint"),
    (["ckpt={world}/list_checkpoint"], "has checkpoint format None, but this version of rdm reads format 2"),
    (["ckpt={world}/run/config.yaml"], "is not a run folder (it has no config.yaml)"),
    (["ckpt={world}/no_tokenizer"], "no tokenizer at {world}/no_tokenizer/tokenizer.json"),
    (["ckpt={world}/cut_tokenizer"], "tokenizer.json is not a tokenizer"),
    (["ckpt={world}/ids_out_of_range"], "ids_out_of_range/checkpoints/last.ckpt is not that of this data"),
    (["ckpt={world}/config_not_yaml"], "config.yaml cannot be read (ParserError): name a run folder of train.py"),
    (["ckpt={world}/config_empty"], "config.yaml is not the configuration of a run: it has no name"),
    (["ckpt={world}/config_list"], "config.yaml is not the configuration of a run: it has no name"),
    (["ckpt={world}/config_latin"], "config.yaml cannot be read (UnicodeDecodeError)"),
    (["ckpt={world}/config_of_something_else"], "is not the configuration of a run: it has no vocab, system"),
    (["ckpt={world}/other_size"], "was trained with system.denoiser.network.dim=32, but here it is 64"),
    (["ckpt={world}/no_system"], "system: this is not a System"),
    (["ckpt={world}/foreign_code"], "os.system is not a class of this package"),
    ([RUN, "decoding.steps=51"], "decoding.steps=51 exceeds diffusion.num_steps=50"),
    ([RUN, "decoding=beam"], "decoding=beam is not for diffusion over tokens"),
    ([RUN, "decoding=foo"], "Available options in 'decoding': ancestral"),
    ([RUN, "+decoding.foo=1"], "decoding.foo: rdm.decoding.sampler.Sampler takes no such value"),
    ([RUN, "metrics=foo"], "Available options in 'metrics': diffuseq"),
    ([RUN, "split=dev"], "split: 'dev' is not one of train, valid, test"),
    ([RUN, "average=5"], "has 2 numbered checkpoints"),
    ([RUN, "average=abc"], "average: 'abc' is not a whole number"),
    ([RUN, "average=0"], "average must be at least 1, got 0"),
    ([RUN, "limit=0"], "limit must be at least 1"),
    ([RUN, "batch_size=0"], "batch_size must be at least 1, got 0"),
    ([RUN, "likelihood=0"], "likelihood must be all or at least 1 draw, got 0"),
    ([RUN, "likelihood=few"], "likelihood: 'few' is not a whole number or one of all or null"),
    ([RUN, "device=nothing"], "device=nothing cannot be used here"),
    ([RUN, "results={world}/file/rows.jsonl"], "{world}/file is not a writable folder; name another place"),
    ([RUN, "results={world}/folder"], "{world}/folder cannot be written"),
]

GENERATE: list[tuple[list[str], str]] = [
    ([RUN, "text=''"], "source 1 has 0 tokens; 1 to 63 fit"),
    ([RUN, "text='  '"], "source 1 has 0 tokens; 1 to 63 fit"),
    ([RUN, f"text='{LONG}'"], "source 1 has 10000 tokens; 1 to 63 fit"),
    ([RUN, "text=[a,b]"], "text: ['a', 'b'] is not a word"),
    ([RUN, "text=a, b"], "To use it as string, quote the value"),
    ([RUN, "text=it's"], "a value with special characters needs quotes"),
    ([RUN, "text='\udce4'"], "an unpaired surrogate"),
    ([RUN, "trace=maybe"], "trace: 'maybe' is not true or false"),
    ([RUN, "template=."], "template: no blank in '.'; write _ for every token"),
    ([RUN, "template='zzzz _'"], "has a word that is not in the vocabulary of the model"),
    ([RUN, f"template='{'_ ' * 70}'"], "template: 70 tokens are too many; up to 63 fit"),
    ([RUN, "split=test"], "Could not override 'split'"),
]

SYSTEMS = {"levt": [], "disco": [], "cdcd": ["model.embedding=8", "model.layers=1"], "ar": [], "ar_lm": []}
"""Further overrides of the runs of other systems, ``{world}/<system>``."""
LEVT, DISCO, CDCD, AR, AR_LM = (f"ckpt={{world}}/{system}" for system in SYSTEMS)
EVALUATE_SYSTEMS: list[tuple[list[str], str]] = [
    ([LEVT, "decoding=rdm"], "system=levt needs decoding=levenshtein, not rdm"),
    ([LEVT, "rescore={world}/ar"], "has no candidates to choose from: decoding=levenshtein decodes one text"),
    ([LEVT, "decoding.length_candidates=2"], "takes no such value; it takes name, steps, placeholder_penalty"),
    ([DISCO, "decoding=rdm"], "system=disco needs decoding=easy_first, not rdm"),
    ([DISCO, "decoding.length_candidates=1000"], "but there are only 63 lengths"),
    ([DISCO, "rescore={world}/levt"], "is a run of system levt; name a run of system=ar"),
    ([CDCD, "decoding=rdm"], "system=cdcd needs decoding=cdcd or decoding=cdcd_mbr, not rdm"),
    ([CDCD, "selection=length_aware"], "selection: CDCD has no length head; leave it out"),
    ([AR, "decoding=rdm"], "decoding=rdm does not fit an autoregressive model; use decoding=beam"),
    ([AR, "decoding.steps=4"], "takes no such value; it takes name, beam_size, length_penalty"),
    ([AR, "+decoding.guidance=2"], "decoding.guidance: rdm.decoding.beam.BeamSearch takes no such value"),
    ([AR, "rescore={world}/ar"], "has no candidates to choose from: decoding=beam has no selection"),
    ([AR_LM, "decoding=rdm"], "decoding=rdm does not fit system=ar_lm; use decoding=left_to_right"),
    ([RUN, "rescore={world}/ar_lm"], "is a run of system ar_lm; name a run of system=ar"),
    ([RUN, "decoding.guidance=2"], "decoding.guidance=2 needs a run trained with system.source_dropout above 0"),
]
SCORE = ["score=true", "input={world}/file", "targets={world}/file", "output={world}/scores.tsv"]
GENERATE_SYSTEMS: list[tuple[list[str], str]] = [
    ([LEVT, "template='_ _'"], "template: the Levenshtein Transformer chooses the positions of its tokens itself"),
    ([LEVT, "nbest=2"], "nbest=2, but decoding=levenshtein decodes 1 candidates per source"),
    ([LEVT, *SCORE], "score: LevenshteinSystem has no likelihood"),
    ([DISCO, "nbest=9"], "nbest=9, but decoding=easy_first decodes 5 candidates per source"),
    ([CDCD, "template='_ _'", "trace=true"], "template: CDCD cannot fill blanks"),
    ([AR, "template='_ _'"], "template: an autoregressive model cannot fill blanks"),
]

MODULES: list[tuple[list[str], str]] = [
    (["rdm.report"], "required: paths; python -m rdm.report --help lists the options"),
    (["rdm.report", "nowhere"], "nowhere does not exist; name run folders, sweep folders or results files"),
    (
        ["rdm.report", "{world}/folder"],
        "no results and no training metrics below {world}/folder; run train.py or evaluate.py first",
    ),
    (["rdm.report", "{world}/rows_empty.jsonl"], "run train.py or evaluate.py first"),
    (["rdm.report", "{world}/rows_cut.jsonl"], "{world}/rows_cut.jsonl, line 1 is not a result row"),
    (["rdm.report", "{world}/rows_list.jsonl"], "{world}/rows_list.jsonl, line 1 is not a result row"),
    (["rdm.report", "{world}/rows_latin.jsonl"], "{world}/rows_latin.jsonl, line 1 is not a result row"),
    (["rdm.report", "{world}/rows_other.jsonl"], "result row 1 was not written by evaluate.py: it has no system"),
    (["rdm.report", "{world}/run", "--foo"], "unrecognized arguments: --foo"),
    (["rdm.compare", "{world}/outputs.jsonl"], "required: second"),
    (["rdm.compare", "{world}/outputs.jsonl", "nowhere"], "nowhere does not exist; name a file of"),
    (["rdm.compare", "{world}/outputs.jsonl", "{world}/outputs_other.jsonl"], "have different sources or references"),
    (
        ["rdm.compare", *["{world}/outputs_uneven.jsonl"] * 2],
        "all lines need the same number of references, got [1, 2]",
    ),
    (["rdm.compare", *["{world}/outputs_types.jsonl"] * 2], "has no hypotheses; name a file of"),
    (["rdm.compare", *["{world}/outputs_none.jsonl"] * 2], "has no hypotheses; name a file of"),
    (["rdm.compare", *["{world}/rows_empty.jsonl"] * 2], "all lines need the same number of references, got none"),
    (["rdm.compare", *["{world}/outputs.jsonl"] * 2, "--samples=0"], "--samples must be at least 1, got 0"),
    (["rdm.compare", *["{world}/outputs.jsonl"] * 2, "--tokenize=foo"], "choose from '13a', 'none'"),
    (["rdm.bench", "--out={world}/file/x.json"], "{world}/file is not a writable folder; name another place"),
    (["rdm.bench", "--slow"], "unrecognized arguments: --slow"),
    (["rdm.replay", "nowhere"], "nowhere cannot be read (FileNotFoundError); name a file of <run>/not_finite"),
    (["rdm.replay", "{world}/run/checkpoints/last.ckpt"], "last.ckpt is not a saved step; name a file of"),
    (["rdm.data.inspect", "data=foo"], "Could not find 'data/foo'"),
    (["rdm.data.inspect", "data=qqp"], "see data/qqp.card.md"),
    (["rdm.data.inspect", "nothing=1"], "Could not override 'nothing'"),
]

WRONG_USES = [
    *(("train.py", *use) for use in TRAIN),
    *(("evaluate.py", *use) for use in EVALUATE),
    *(("generate.py", *use) for use in GENERATE),
    *(("-m", *use) for use in MODULES),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good run and everything that can be wrong."""
    world = tmp_path_factory.mktemp("world")
    script("train.py", *SMALL, f"hydra.run.dir={world / 'run'}")
    make(world)
    return world


@pytest.fixture(scope="module")
def systems(world: Path) -> Path:
    """The same folder with runs of other systems."""
    for system, overrides in SYSTEMS.items():
        short = ["trainer.max_steps=1", "callbacks.sampling=null"]
        script("train.py", f"system={system}", *SMALL, *short, *overrides, f"hydra.run.dir={world / system}")
    return world


def listing(world: Path) -> set[tuple[str, int]]:
    """All files a mistake could leave behind or touch."""
    touched = {(str(file), file.stat().st_mtime_ns if file.is_file() else 0) for file in world.rglob("*")}
    return touched | {(str(file), 0) for file in (*ROOT.glob("[!.]*"), *(ROOT / "outputs").glob("*"))}


def assert_refused(name: str, overrides: list[str], message: str, world: Path) -> None:
    """Exit code 2, one line on stderr, and every file as it was."""
    # A use that is wrongly taken for a right one should at least end soon.
    small = SMALL if not any(override.startswith("data=") for override in overrides) else []
    before = listing(world)
    where = [*small, f"hydra.run.dir={world / 'new'}"] if name == "train.py" else []
    done = script(name, *where, *(text.replace("{world}", str(world)) for text in overrides), code=2)
    after = listing(world)
    shutil.rmtree(world / "new", ignore_errors=True)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message.replace("{world}", str(world)) in line
    assert after == before


@pytest.mark.parametrize(("name", "overrides", "message"), WRONG_USES)
def test_wrong_use(name: str, overrides: list[str], message: str, world: Path) -> None:
    assert_refused(name, overrides, message, world)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [*(("evaluate.py", *use) for use in EVALUATE_SYSTEMS), *(("generate.py", *use) for use in GENERATE_SYSTEMS)],
)
def test_wrong_use_of_other_systems(name: str, overrides: list[str], message: str, systems: Path) -> None:
    assert_refused(name, overrides, message, systems)


def test_there_are_many_wrong_uses() -> None:
    assert len({(name, tuple(overrides)) for name, overrides, _ in WRONG_USES}) >= 140


@pytest.mark.parametrize("text", [b"\xff\xfe", "grüße".encode("latin-1")])
def test_standard_input_that_is_not_text(text: bytes, world: Path) -> None:
    done = script("generate.py", f"ckpt={world / 'run'}", "text=-", input=text, code=2)
    assert "text=-: standard input is not UTF-8" in done.stderr


def test_debug_shows_the_stack_trace(world: Path) -> None:
    done = script("train.py", "decoding.steps=0", "debug=true", f"hydra.run.dir={world / 'new'}", code=1)
    assert "Traceback" in done.stderr
    assert "decoding.steps must be at least 1, got 0" in done.stderr
