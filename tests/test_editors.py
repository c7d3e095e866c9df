"""The editors themselves with the settings of `editors/`: Neovim runs, the VS Code extension is built and packaged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from programs import program

from torchlint.server.settings import ServerSettings, read_settings
from torchlint.toml import parse_toml

ROOT = Path(__file__).resolve().parent.parent
EDITORS = ROOT / "editors"
TRAIN = """\
import torch


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=False)
    device = torch.device("cuda")
    x = torch.zeros(3).to(device)
    y = torch.ones(3).to(device)
    return x, y
"""


def test_neovim_shows_diagnostics_and_applies_fixes(tmp_path: Path) -> None:
    nvim = program("nvim")
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    result = tmp_path / "result.json"
    folders = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    session = "\n".join([str(ROOT), sys.executable, str(result)])
    script = ROOT / "tests" / "neovim_session.lua"
    subprocess.run(
        [nvim, "--headless", "-u", "NONE", "-n", "-c", f"luafile {script}"],
        cwd=tmp_path,
        env={**os.environ, **folders, "TORCHLINT_SESSION": session},
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    said: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    assert "error" not in said, said
    assert said["opened"] == ["TL201 7:8 torchlint", "TL201 8:8 torchlint", "TL405 5:4 torchlint"]
    assert any("ignore TL201" in title for title in said["offered"])
    fixed = TRAIN.replace("torch.zeros(3).to(device)", "torch.zeros(3, device=device)")
    assert said["fixed"] + "\n" == fixed
    assert said["left"] == ["TL201 8:8 torchlint", "TL405 5:4 torchlint"]
    assert said["all"] + "\n" == fixed.replace("torch.ones(3).to(device)", "torch.ones(3, device=device)")


def test_the_vs_code_extension_builds_packages_and_passes_its_tests() -> None:
    npm = program("npm")
    folder = EDITORS / "vscode"
    if not (folder / "node_modules").is_dir():
        run([npm, "ci", "--no-audit", "--no-fund"], folder)
    run([npm, "test"], folder)
    assert (folder / "dist" / "torchlint.vsix").is_file()


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lock_file_names_no_private_registry() -> None:
    packages = json.loads((EDITORS / "vscode" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    hosts = {package["resolved"].split("/")[2] for package in packages.values() if "resolved" in package}
    assert hosts <= {"registry.npmjs.org"}


def test_helix_starts_the_server_for_python() -> None:
    settings = parse_toml((EDITORS / "helix" / "languages.toml").read_text(encoding="utf-8"))
    server = settings["language-server"]["torchlint"]
    assert [server["command"], *server["args"]] == ["torchlint", "server"]
    (language,) = settings["language"]
    assert language["name"] == "python"
    assert "torchlint" in language["language-servers"]


def test_the_extensions_settings_are_those_that_the_server_knows() -> None:
    manifest = json.loads((EDITORS / "vscode" / "package.json").read_text(encoding="utf-8"))
    declared = manifest["contributes"]["configuration"]["properties"]
    defaults = ServerSettings()
    assert declared["torchlint.diagnosticMode"]["default"] == defaults.diagnostic_mode
    assert declared["torchlint.debounce"]["default"] == defaults.debounce
    told = {"diagnosticMode": "workspace", "debounce": 5, "configuration": "a.toml"}
    assert read_settings(told) == (ServerSettings("workspace", 5, "a.toml"), "")
    assert {f"torchlint.{key}" for key in told} <= declared.keys()


def test_every_setting_that_the_files_mention_exists() -> None:
    known = {"diagnosticMode", "debounce", "configuration"}
    for path in (EDITORS / "neovim" / "torchlint.lua", EDITORS / "helix" / "languages.toml"):
        (mentioned,) = re.findall(r"\{ (diagnosticMode.*) \}", path.read_text(encoding="utf-8"))
        assert set(re.findall(r"(\w+) =", mentioned)) <= known
    emacs = (EDITORS / "emacs" / "torchlint.el").read_text(encoding="utf-8")
    assert set(re.findall(r":(diagnosticMode|debounce|configuration)\b", emacs)) == {"diagnosticMode", "debounce"}
