"""Goes over all it has kept after each step. Planted: each step takes longer than the one before."""

import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []
for _ in range(160):
    loss = model(torch.randn(128, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    # Stands for work on all of it, which a busy machine would stretch at random.
    time.sleep(4e-4 * len(history))
print(f"mean {sum(history) / len(history):.6f}")
