"""Settings for all tests."""

import torch

from rdm.app.composition import register

# Test tensors are tiny: more threads only add overhead, especially with parallel test processes.
torch.set_num_threads(1)
# As the scripts do: tests also compose the configs of evaluate.py and generate.py.
register()
