"""LBFGS, whose step calls a closure several times; all data in one batch. Planted: none."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 512).unsqueeze(1)
y = torch.sin(x)
model = nn.Sequential(nn.Linear(1, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(60):
    loss = optimizer.step(closure)
    print(f"step {step} loss {loss.item():.8f}")
