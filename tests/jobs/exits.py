"""Leaves by sys.exit in the middle of an epoch. Planted: exit code 3."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(1024, 16)), batch_size=16)):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
    if step == 12:
        print("budget used up", file=sys.stderr)
        sys.exit(3)
