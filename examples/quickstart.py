# %% [markdown]
# # Quickstart
#
# Train a small discrete diffusion model on generated text, decode with it, look at every iteration, and write a
# decoding strategy of your own. Everything runs on a laptop CPU, without a network.
#
# This notebook is `examples/quickstart.py`; run either of them.

# %%
import subprocess
import sys
from pathlib import Path

import torch

import rdm
from rdm.decoding import Linear, Router, Sampler, State, actions, top_k

# %% [markdown]
# ## Train
#
# The default is RDM-absorbing on generated pairs of sentences. `rdm-train` is the same as `python train.py` in a clone
# of the repository; `group=choice` and `key=value` change what is trained.

# %%
run = Path("outputs/quickstart")
if not (run / "finished").exists():
    command = [Path(sys.executable).with_name("rdm-train"), f"hydra.run.dir={run}", "resume=auto"]
    short = ["trainer.max_steps=600", "trainer.val_check_interval=600", "trainer.log_every_n_steps=100"]
    subprocess.run([*command, *short], check=True)

# %% [markdown]
# ## Generate
#
# A model is loaded from its run folder. The test split of the generated text gives us something to translate.

# %%
model = rdm.load(run)
questions = model.data().questions("test").first(200)
outputs = model.generate(questions.sources[:3], steps=10)
for source, output in zip(questions.sources, outputs):
    print(f"{source}\n  -> {output.text}   (score {output.score:.3f})")

# %% [markdown]
# With `trace=True` an output records every iteration; in a notebook it is shown as the decoding page, with a slider.

# %%
traced = model.generate(questions.sources[:1], steps=6, trace=True)[0]
print("\n".join(traced.trace.lines()))
traced

# %% [markdown]
# ## Compare decoding strategies
#
# Every choice of `conf/decoding` can be named.

# %%
references = list(zip(*questions.references))


def bleu(decoding, **options):
    return model.evaluate(questions.sources, references, ["sacrebleu"], decoding, **options)["sacrebleu"]


for decoding in ("vanilla", "rdm", "rdm_commit"):
    print(f"{decoding:12} {bleu(decoding, steps=4, schedule='linear'):6.2f} BLEU with 4 iterations")


# %% [markdown]
# ## Write a router
#
# A router decides for every token: KEEP, NOISE or PROPOSE (take the proposal of the network). This one denoises the
# tokens whose two most likely ids are farthest apart.


# %%
class Margin(Router):
    def route(self, state: State) -> torch.Tensor:
        first, second = state.logits.softmax(-1).topk(2).values.unbind(-1)
        margin = torch.zeros_like(state.scores)
        margin[state.active] = first - second
        missing = (state.count - state.denoised.sum(1)).clamp(min=0)
        chosen = top_k(margin, missing, state.noisy)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


margin = Sampler("margin", steps=4, transition=Margin(), schedule=Linear())
print(f"{'margin':12} {bleu(margin):6.2f} BLEU with 4 iterations")

# %% [markdown]
# In a file `my_router.py` of yours the same class works on the command line, without changing the package:
#
# ```sh
# rdm-evaluate ckpt=outputs/quickstart decoding.transition._target_=my_router.Margin
# ```
