"""Two networks with an optimizer each, the discriminator stepped first. Planted: none."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
real = TensorDataset(torch.randn(4096, 128) * 0.5 + 1)
loader = DataLoader(real, batch_size=64, shuffle=True, drop_last=True)
generator = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
discriminator = nn.Sequential(
    nn.Linear(128, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)
)
steps_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
steps_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

for epoch in range(2):
    for i, (samples,) in enumerate(loader):
        fake = generator(torch.randn(64, 32))
        steps_d.zero_grad()
        loss_d = criterion(discriminator(samples), ones) + criterion(discriminator(fake.detach()), zeros)
        loss_d.backward()
        steps_d.step()
        steps_g.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        steps_g.step()
        if i % 10 == 0:
            print(f"[{epoch}][{i}/{len(loader)}] loss_d {loss_d.item():.4f} loss_g {loss_g.item():.4f}")
