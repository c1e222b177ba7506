"""A Trainer class with evaluation and a schedule, as research code has it. Planted: none."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Trainer:
    def __init__(self, model, train, valid, optimizer, scheduler, every=12):
        self.model, self.optimizer, self.scheduler, self.every = model, optimizer, scheduler, every
        self.train_loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(valid, batch_size=32)
        self.step = 0

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for batch in self.train_loader:
                self.training_step(batch)
                if self.step % self.every == 0:
                    print(f"epoch {epoch} step {self.step} valid {self.evaluate():.6f}")

    def training_step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses = [nn.functional.mse_loss(self.model(x), y).item() for x, y in self.valid_loader]
        self.model.train()
        return sum(losses) / len(losses)


if __name__ == "__main__":
    torch.manual_seed(0)
    inputs = torch.randn(2048, 32)
    train, valid = random_split(TensorDataset(inputs, inputs.sum(1, keepdim=True)), [1792, 256])
    model = nn.Sequential(nn.Linear(32, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    Trainer(model, train, valid, optimizer, scheduler).fit(epochs=3)
