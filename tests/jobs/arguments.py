"""argparse, with arguments that look like gpudoctor's own. Planted: a checkpoint after each step."""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--format", choices=["pt"], required=True)
parser.add_argument("-m", "--momentum", type=float, default=0.0)
parser.add_argument("--shift", type=float)
parser.add_argument("names", nargs="*")
options = parser.parse_args()
print(options)

torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
model = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=options.momentum)
with tempfile.TemporaryDirectory() as folder:
    for step, (x, y) in enumerate(DataLoader(data, batch_size=16)):
        loss = (model(x) - y - options.shift).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        for copy in range(3):
            torch.save(state, os.path.join(folder, f"{copy}.{options.format}"))
        if step == options.steps:
            break
