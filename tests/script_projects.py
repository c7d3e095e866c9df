"""Small training scripts for the tests of `torchlint verify --script`, and what is needed to run them."""

from __future__ import annotations

import hashlib
import os
import textwrap
from pathlib import Path

from torchlint.runtime_verify.script import project_copy
from torchlint.runtime_verify.script.run import ORIGINAL, Measured, Options, Runner, Version, Workspace

# In the shape of pytorch/examples' mnist/main.py, with numbers instead of images to download.
MNIST = """\
import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

from digits import Digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    total = 0.0
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"Train Epoch: {epoch} Loss: {total / len(train_loader):.6f}")


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    for data, target in test_loader:
        data, target = data.to(device), target.to(device)
        output = model(data)
        test_loss += F.nll_loss(output, target, reduction="sum").item()
        correct += output.argmax(dim=1).eq(target).sum().item()
    print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {correct}/{len(test_loader.dataset)}")


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Digits(64), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Digits(16), batch_size=8)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        if args.save_model:
            torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
"""

DIGITS = """\
import torch
from torch.utils.data import Dataset


class Digits(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        self.images = torch.randn(size, 1, 8, 8, generator=generator)
        self.labels = torch.randint(10, (size,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].numpy().copy()
        return torch.from_numpy(image), self.labels[index]
"""

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""

STEP = """\
    optimizer.zero_grad()
    loss = net(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def project(folder: Path, **files: str) -> Path:
    """A project with these files: `train="…"` becomes train.py. Its first one is given back."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text("[project]\nname = 'sample'\n", encoding="utf-8")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return folder / f"{next(iter(files))}.py"


def tree_hash(folder: Path) -> str:
    """A digest of all that a folder holds: names, kinds, modes, times of change, contents."""
    digest = hashlib.sha256()
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = os.path.join(parent, name)
            status = os.lstat(path)
            digest.update(f"{path}|{status.st_mode}|{status.st_mtime_ns}|{status.st_size}".encode())
            if os.path.islink(path):
                digest.update(os.readlink(path).encode())
            elif os.path.isfile(path):
                digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def survey(script: Path, *arguments: str, steps: int = 6, warmup: int = 1, seconds: float = 300.0) -> Measured:
    """One run of a script as it is, in a copy of its folder."""
    options = Options(script.name, arguments, steps=steps, warmup=warmup, seconds=seconds)
    with Workspace() as workspace:
        found = project_copy.snapshot(script.parent, workspace.store)
        return Runner(workspace, found, options).survey(Version(ORIGINAL))
