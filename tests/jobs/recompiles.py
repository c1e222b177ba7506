"""torch.compile with a sequence length that changes. Planted: it compiles again and again."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    loss = compiled(torch.randn(8 + step // 4, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
