"""Dies of an exception in the middle of an epoch. Planted: out of memory, or a loss that is no number."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

TEXTS = {
    "memory": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
    "1.06 GiB is free. Including non-PyTorch memory, this process has 78.03 GiB memory in use. Of the allocated "
    "memory 76.20 GiB is allocated by PyTorch, and 1.10 GiB is reserved by PyTorch but unallocated.",
    "nan": "loss is nan at step 12, stopping training",
}

model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(1024, 16)), batch_size=16)):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    if step == 12:
        kind = torch.OutOfMemoryError if sys.argv[1] == "memory" else ValueError
        raise kind(TEXTS[sys.argv[1]])
