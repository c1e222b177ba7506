"""Goes over all it has kept after each step. Planted: each step takes longer than the one before."""

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
    history.extend(loss.detach() for _ in range(250))
    mean = sum(kept.item() for kept in history) / len(history)
print(f"mean {mean:.6f}")
