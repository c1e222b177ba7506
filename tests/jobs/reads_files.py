"""Reads its settings from a file beside itself by relative path, and its samples from slow storage.

Planted: slow storage. A FIFO that is fed slowly stands for it: whoever reads waits, and uses no CPU.
"""

import os
import tempfile
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BLOCK = 16384


class Stored(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")
        return torch.frombuffer(bytearray(self.file.read(BLOCK)), dtype=torch.uint8)[:64].float()


def feed(path):
    with open(path, "wb", buffering=0) as storage:
        while True:
            time.sleep(0.02)
            storage.write(os.urandom(BLOCK))


with open("settings.txt") as file:
    settings = dict(line.split("=") for line in file.read().split())
width = int(settings["width"])
path = os.path.join(tempfile.mkdtemp(), "samples")
os.mkfifo(path)
loader = DataLoader(Stored(path), batch_size=4, num_workers=1)
iterator = iter(loader)
threading.Thread(target=feed, args=(path,), daemon=True).start()
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=float(settings["lr"]))
for x in iterator:
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
