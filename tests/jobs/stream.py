"""An IterableDataset that tokenises text as it comes, in one worker. Planted: a slow loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        number = first
        while True:
            words = [str(number * k % 9973) for k in range(30000)]
            vocabulary = {word: index % 1000 for index, word in enumerate(sorted(set(words)))}
            yield torch.tensor([vocabulary[word] for word in words[:65]])
            number += every


model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1000))
optimizer = torch.optim.AdamW(model.parameters())
for step, tokens in enumerate(DataLoader(Stream(), batch_size=4, num_workers=1)):
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 80:
        break
