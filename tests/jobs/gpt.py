"""A small GPT on random tokens, with at most one planted fault: `python gpt.py [FAULT]`. For a GPU.

Healthy: bf16 autocast, fused AdamW, scaled_dot_product_attention, pinned memory, four loader workers.
"""

import argparse
import gc
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULTS = (
    "none",
    "slow-loader",
    "few-workers",
    "fp32",
    "launch-bound",
    "checkpoint-stall",
    "log-stall",
    "item-sync",
    "unaligned-vocab",
    "ddp-gloo",
    "ddp-straggler",
)


class Tokens(Dataset):
    """`context` + 1 random tokens a sample; `cost_ms` of CPU work each."""

    def __init__(self, vocabulary: int, context: int, cost_ms: float) -> None:
        self.vocabulary, self.context, self.cost_ms = vocabulary, context, cost_ms

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.thread_time() + self.cost_ms / 1e3
        while time.thread_time() < until:
            pass
        return torch.randint(0, self.vocabulary, (self.context + 1,))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, read_back: bool) -> None:
        super().__init__()
        self.heads, self.read_back = heads, read_back
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, context, width))
        if self.read_back:
            x.mean().item()
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int, read_back: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, read_back) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("fault", choices=FAULTS, nargs="?", default="none")
    options.add_argument("--steps", type=int, default=400)
    arguments = options.parse_args()
    fault = arguments.fault
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    tiny = fault == "launch-bound" or ranks > 1
    vocabulary = 50257 if fault == "unaligned-vocab" else 512 if tiny else 32768
    layers, width, heads, context, batch = (12, 128, 4, 32, 2) if fault == "launch-bound" else (12, 768, 12, 512, 16)
    if ranks > 1:
        layers, width, heads, context, batch = 4, 256, 4, 128, 8
    if fault != "fp32":
        torch.set_float32_matmul_precision("high")
    model: nn.Module = Gpt(vocabulary, layers, width, heads, context, fault == "item-sync").cuda()
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    cost_ms = {"slow-loader": 12.0, "few-workers": 10.0}.get(fault, 0.0)
    workers = {"slow-loader": 0, "few-workers": 1}.get(fault, 4)
    loader = DataLoader(Tokens(vocabulary, context, cost_ms), batch_size=batch, num_workers=workers, pin_memory=True)
    with tempfile.TemporaryDirectory() as folder:
        for step, tokens in enumerate(loader):
            if step == arguments.steps:
                break
            tokens = tokens.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=fault != "fp32"):
                scores = model(tokens[:, :-1])
                loss = functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if fault == "ddp-straggler" and rank == 1:
                time.sleep(0.06)
            optimizer.step()
            if fault == "checkpoint-stall" and step % 4 == 3:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, os.path.join(folder, "checkpoint.pt"))
                del state
                gc.collect()
            if fault == "log-stall":
                loss.item()
                time.sleep(0.04)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
