"""Run as a module, with a relative import: `python -m package.train`. Planted: pauses of the garbage collector."""

import gc

import torch
from torch.utils.data import DataLoader, TensorDataset

from .model import build

torch.manual_seed(0)
cache = [{"index": index, "tags": [str(index)]} for index in range(20_000)]  # what the collector walks each time
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(1280, 32), torch.randn(1280, 1)), batch_size=32)
for step, (x, y) in enumerate(loader):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
    if step % 20 == 0:
        print(f"{__name__} {__package__} step {step} loss {loss.item():.6f}")
