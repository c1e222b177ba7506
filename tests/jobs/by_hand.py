"""No optimizer: the update is written out. Planted: none."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(8192, 256), torch.randn(8192, 8))
weights = [torch.randn(256, 1024) * 0.05, torch.randn(1024, 1024) * 0.03, torch.randn(1024, 8) * 0.03]
for weight in weights:
    weight.requires_grad_()
for step, (x, y) in enumerate(DataLoader(data, batch_size=32)):
    hidden = torch.relu(torch.relu(x @ weights[0]) @ weights[1])
    loss = (hidden @ weights[2] - y).square().mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            weight -= 0.01 * gradient
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.6f}")
