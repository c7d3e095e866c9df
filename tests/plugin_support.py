"""Custom rules, and installed packages that hold some, for tests; and torchlint run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RULE = '''\
from torchlint import Level, Rule


class NoSeed(Rule):
    """`manual_seed` is called outside the start-up code.

    ## What it finds
    Every call of `manual_seed`.
    """

    code, name, level = "{code}", "{name}", Level.WARNING

    def check(self, module):
        for call in module.calls_named("manual_seed"):
            yield self.finding(call, "{message}")
'''

SEEDED = "import torch\n\ntorch.manual_seed(0)\n"


def rule_text(code: str = "ACME001", name: str = "no-seed", message: str = "seed it elsewhere") -> str:
    """A module with one rule, which finds calls of `manual_seed`."""
    return RULE.format(code=code, name=name, message=message)


def install(site: Path, package: str, text: str, target: str | None = None, version: str = "1.0") -> None:
    """Put a package into a folder as an installer would, with `text` as its only module and an entry point to it."""
    module = package.replace("-", "_")
    (site / module).mkdir(parents=True, exist_ok=True)
    (site / module / "__init__.py").write_text(text, encoding="utf-8")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
    points = f"[torchlint.rules]\n{module} = {target or module}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """An environment in which nobody's own settings count."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHLINT_", "PYLINT"))}
    home = str(tmp_path / "home")
    return {**own, "HOME": home, "XDG_CONFIG_HOME": os.path.join(home, ".config"), "XDG_CACHE_HOME": home, **more}


def run(*command: str, cwd: Path, env: dict[str, str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a module of this Python (`torchlint`, `pylint`, `flake8`) as a process."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# A finding of TL101 on line 9, one of TL405 on line 10.
TRAIN = """\
import torch
from torch import nn


def train(model: nn.Module, loader, optimizer: torch.optim.Optimizer, losses):
    for images in loader:
        loss = model(images.cuda()).sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()
"""

# Counts the runs of torchlint, in whatever process they are.
COUNTING = """\
import os
from torchlint.runner import Run

_reports = Run.reports


def _counted(self):
    with open(os.environ["RUNS"], "a") as file:
        print(os.getpid(), len(self.plans), file=file)
    return _reports(self)


Run.reports = _counted


def register(linter):
    pass
"""


def package(tmp_path: Path, **files: str) -> Path:
    """A project with a package `pkg` that holds these modules; beside it lies the module `counting`."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "pkg").mkdir()
    (project / "pkg" / "__init__.py").touch()
    for name, text in files.items():
        (project / "pkg" / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "counting.py").write_text(COUNTING, encoding="utf-8")
    return project
