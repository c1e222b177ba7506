"""A script with a main guard that decodes each sample in the training process. Planted: a slow loader without workers."""

import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Compressed(Dataset):
    def __init__(self):
        noise = torch.randint(0, 4, (200_000,), dtype=torch.uint8).numpy().tobytes()
        self.samples = [zlib.compress(noise) for _ in range(4)]

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        pixels = zlib.decompress(self.samples[index % 4])
        pixels = zlib.decompress(zlib.compress(pixels, 1))
        return torch.tensor(list(pixels[:256]), dtype=torch.float32) / 255, index % 10


def main():
    loader = DataLoader(Compressed(), batch_size=8)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item()}")


if __name__ == "__main__":
    main()
