"""A short, real training job: a byte-level Transformer under DDP, on text that every machine has.

It learns to write Python from the standard library's sources. NCCL on GPUs, gloo on CPUs; sized to the device; the loss
falls from about 5.5 (a uniform guess over 256 bytes) within some tens of steps. `gpudoctor profile` runs it where no
script is given. It needs torch and the standard library alone, Python 3.9 and newer.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# This file is run by its path, so its folder stands first on sys.path, where neighbours bear the names of packages.
if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CORPUS_BYTES = 8_000_000
# layers, width, heads, context, batch a rank
ON_GPU = (12, 768, 12, 512, 32)
ON_CPU = (2, 128, 4, 64, 16)


def corpus() -> torch.Tensor:
    """The sources of the standard library, one file after another, as bytes."""
    folder = Path(os.__file__).parent
    text = bytearray()
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.parts:
            text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(text, dtype=torch.uint8)


class Windows(Dataset):  # type: ignore[type-arg]
    """Stretches of the corpus: `context` bytes, and the byte that follows each of them."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self.text = text
        self.context = context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm and around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, context, width) → the same shape."""
        batch, context, width = x.shape
        split = self.qkv(self.norm_attention(x)).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, context, width))
        return x + self.perceptron(self.norm_perceptron(x))


class Transformer(nn.Module):
    """Bytes in, the next byte's scores out."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """(batch, context) of bytes → (batch, context, 256) of scores."""
        places = torch.arange(seen.shape[1], device=seen.device)
        return self.head(self.norm(self.blocks(self.bytes(seen) + self.places(places))))


def main() -> None:
    """Train until `--steps` are done or somebody ends the job."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=1000)
    steps = options.parse_args().steps
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()) if on_gpu else None
    if device is not None:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    layers, width, heads, context, batch = ON_GPU if on_gpu else ON_CPU
    windows = Windows(corpus(), context)
    loader = DataLoader(
        windows,
        batch_size=batch,
        sampler=DistributedSampler(windows, seed=0),
        drop_last=True,
        num_workers=2 if on_gpu else 0,
        pin_memory=on_gpu,
        persistent_workers=on_gpu,
    )
    model = DistributedDataParallel(Transformer(layers, width, heads, context).to(device or "cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 if on_gpu else 3e-3, fused=on_gpu)
    done = 0
    while done < steps:
        for seen, wanted in loader:
            seen, wanted = (part.to(device or "cpu", non_blocking=True) for part in (seen, wanted))
            with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16, enabled=on_gpu):
                loss = functional.cross_entropy(model(seen).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if done % 10 == 0 and dist.get_rank() == 0:
                print(f"step {done:4d}  loss {loss.item():.3f}", flush=True)
            done += 1
            if done == steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
