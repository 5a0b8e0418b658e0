"""A plug-in (`--plugin FILE`) with which a training run computes the same bits on a GPU each time.

Operations without a deterministic kernel still run, with a warning; they are part of drawing tokens, where another last
bit changes a token with a chance of about 1e-15.
"""

import os

import torch

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass adds in any order
