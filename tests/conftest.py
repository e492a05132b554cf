"""Settings for all tests."""

import torch

# The tensors here are tiny: more threads only wait for each other, above all when tests run side by side.
torch.set_num_threads(1)
