"""A training loop with most of the usual faults, to be examined: `perfsuite diagnose docs/examples/train.py`."""

from __future__ import annotations

import torch


class Noise(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take the host a while to make."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.randn(64, 1000).sin().cos().tanh()[:, :510]


model = torch.nn.Sequential(torch.nn.Linear(510, 2047), torch.nn.GELU(), torch.nn.Linear(2047, 10)).cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in torch.utils.data.DataLoader(Noise(), batch_size=8):
    loss = model(batch.cuda().half()).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if loss.item() < 1e-9:
        break
