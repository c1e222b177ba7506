"""A trainer with arguments, callbacks and a collator, as the Transformers library has it.

Planted: a callback that waits for a tracking server after each step.
"""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 8
    max_steps: int = 60
    learning_rate: float = 1e-3


class TrainerCallback:
    def on_step_end(self, args, state, **kwargs):
        pass


class TrackingCallback(TrainerCallback):
    def on_step_end(self, args, state, **kwargs):
        state["log"].append(kwargs["loss"].item())
        time.sleep(0.12)  # the answer of a server


class Model(nn.Module):
    def __init__(self, vocabulary=512, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids, labels):
        logits = self.head(self.block(self.embed(input_ids)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator, callbacks):
        self.model, self.args, self.callbacks = model, args, callbacks
        self.train_dataset, self.data_collator = train_dataset, data_collator
        self.state = {"global_step": 0, "log": []}

    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset, self.args.per_device_train_batch_size, shuffle=True, collate_fn=self.data_collator
        )

    def train(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        loader = self.get_train_dataloader()
        while self.state["global_step"] < self.args.max_steps:
            for inputs in loader:
                loss = self.model(**inputs)["loss"]
                loss.backward()
                optimizer.step()
                self.model.zero_grad()
                self.state["global_step"] += 1
                for callback in self.callbacks:
                    callback.on_step_end(self.args, self.state, loss=loss)


def collate(samples):
    input_ids = torch.stack(samples)
    return {"input_ids": input_ids, "labels": input_ids}


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = [torch.randint(0, 512, (16,)) for _ in range(512)]
    Trainer(Model(), TrainingArguments(), dataset, collate, [TrackingCallback()]).train()
