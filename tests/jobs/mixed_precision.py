"""bfloat16 autocast and a GradScaler that passes over a step now and then. Planted: none."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 128), torch.randn(4096, 1))
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=5)
for step, (x, y) in enumerate(DataLoader(data, batch_size=32)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - y).square().mean()
    if step % 7 == 3:
        loss = loss * float("inf")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} scale {scaler.get_scale()}")
