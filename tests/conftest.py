"""Settings for all tests."""

import torch

# Test tensors are tiny: more threads only add overhead, especially with parallel test processes.
torch.set_num_threads(1)
