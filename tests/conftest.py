"""Settings of all tests."""

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers are as many as there are cores: threads of their own would only wait for each other.
    torch.set_num_threads(1)
