"""Gradient accumulation over four batches. Planted: none."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATION = 4
torch.manual_seed(0)
data = TensorDataset(torch.randn(16384, 64), torch.randn(16384, 1))
loader = DataLoader(data, batch_size=16)
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch, (x, y) in enumerate(loader):
    loss = (model(x) - y).square().mean() / ACCUMULATION
    loss.backward()
    if (batch + 1) % ACCUMULATION == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"update {(batch + 1) // ACCUMULATION} loss {loss.item():.6f}")
