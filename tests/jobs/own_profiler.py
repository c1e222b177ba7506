"""Takes a trace of its own with torch.profiler. Planted: only one profiler can run."""

import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, schedule

torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
path = os.path.join(tempfile.mkdtemp(), "trace.json")
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=26, warmup=1, active=3, repeat=1),
    on_trace_ready=lambda own: own.export_chrome_trace(path),
) as profiler:
    for step in range(40):
        loss = model(torch.randn(64, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
print(f"trace written: {os.path.getsize(path) > 1000}")
