"""DistributedDataParallel under torchrun: `ddp.py [FAULT]`. Planted: the fault named, or none."""

import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

fault = sys.argv[1] if len(sys.argv) > 1 else "none"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)))
        self.left_out = nn.Linear(width, width) if fault == "unused" else None

    def forward(self, x):
        return self.layers(x)


width, layers, batch = {
    "tiny-buckets": (32, 40, 16),
    "microsteps": (768, 2, 4),
    "none": (256, 2, 1024),
}.get(fault, (128, 2, 256))
model = DistributedDataParallel(Net(width, layers), bucket_cap_mb=0.001 if fault == "tiny-buckets" else 25)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
microsteps = 4 if fault == "microsteps" else 1

for step in range(60):
    for _ in range(microsteps):
        x = torch.randn(batch, width)
        if fault == "straggler" and rank == 1:
            time.sleep(0.2)
        loss = model(x).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if fault == "deadlock" and step == 10 and rank == 1:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
