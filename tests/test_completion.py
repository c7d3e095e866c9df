"""Completion scripts, in the shells that they are for."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from command_line import CommandLine
from plugin_support import environment
from programs import program

from torchlint.completion import SHELLS, script
from torchlint.rule import all_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 20  # seconds

_BASH = """\
source "$1"
line="$2"
read -ra COMP_WORDS <<< "$line"
[[ "$line" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMP_LINE="$line" COMP_POINT=${#line}
function=$(complete -p torchlint | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" torchlint
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Completions:
    """What a shell offers for the end of a line, in a folder with `alpha.py`, `beta.ipynb` and the folder `inner`."""

    def __init__(self, shell: str, tmp_path: Path) -> None:
        self.shell = program(shell)
        self.folder = tmp_path / "folder"
        (self.folder / "inner").mkdir(parents=True)
        (self.folder / "alpha.py").touch()
        (self.folder / "beta.ipynb").touch()
        self.scripts = tmp_path / "scripts"
        self.scripts.mkdir()
        (self.scripts / "_torchlint").write_text(script(shell), encoding="utf-8")
        self.env = environment(tmp_path, TERM="xterm", LC_ALL="C.UTF-8")
        self._ask: Callable[[str], set[str]] = getattr(self, f"_{shell}")

    def __call__(self, line: str) -> set[str]:
        return self._ask(line)

    def _bash(self, line: str) -> set[str]:
        return self._output("--norc", "-c", _BASH, "bash", str(self.scripts / "_torchlint"), line)

    def _fish(self, line: str) -> set[str]:
        code = f"source {self.scripts / '_torchlint'}; complete -C '{line}'"
        return {found.split("\t")[0].rstrip("/") for found in self._output("--no-config", "-c", code)}

    def _output(self, *arguments: str) -> set[str]:
        done = subprocess.run(
            [self.shell, *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stderr == ""
        return set(done.stdout.splitlines())

    def _zsh(self, line: str) -> set[str]:
        """What zsh lists, or puts on the line, when somebody presses the tabulator key."""
        screen = Terminal([self.shell, "-f", "-i"], self.folder, self.env)
        try:
            screen.type(f"PROMPT=; LISTMAX=0; setopt no_beep; fpath=({self.scripts} $fpath); autoload -Uz compinit\n")
            screen.type("compinit -u -D\n")
            screen.type(
                "finish() { print -r -- '<'$BUFFER'>EN''D' }; zle -N finish; bindkey '^X' finish; print REA''DY\n"
            )
            screen.until("READY")
            screen.type(f"{line}\t\x18")
            shown = screen.until("END")
        finally:
            screen.close()
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", " ", shown)
        listed, _, buffer = text.rpartition("<")
        before = line.rpartition(" ")[0]
        finished = buffer.partition(">")[0].removeprefix(before).strip(" ,/")
        words = {word.rstrip("/") for word in listed.split()} - set(line.split())
        return words | ({finished} if finished else set())


class Terminal:
    """A process that believes to be on a terminal."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        import fcntl
        import struct
        import termios

        self._master, other = os.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 400, 300, 0, 0))
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, wanted: str) -> str:
        """What is shown up to `wanted`."""
        shown, deadline = b"", time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.2)[0]:
                shown += os.read(self._master, 1 << 16)
                if wanted.encode() in shown:
                    return shown.decode("utf-8", "replace")
        raise AssertionError(f"waited {PATIENCE} s for {wanted!r} in vain; there was {shown!r}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=PATIENCE)
        os.close(self._master)


@pytest.fixture(params=SHELLS)
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Completions:
    return Completions(request.param, tmp_path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchlint ", {"alpha.py", "beta.ipynb", "inner", "check", "rules", "rule", "config", "init", "completion"}),
        ("torchlint --fix-o", {"--fix-only"}),
        ("torchlint --fix al", {"alpha.py"}),
        ("torchlint alpha.py be", {"beta.ipynb"}),
        ("torchlint alpha.py --exit-z", {"--exit-zero"}),
        ("torchlint check --exit-z", {"--exit-zero"}),
        ("torchlint --fail-on ", {"warning", "info"}),
        ("torchlint --config al", {"alpha.py"}),
        ("torchlint --cache-dir in", {"inner"}),
        ("torchlint --select TL10", {"TL101"}),
        ("torchlint --select sync-", {"sync-in-loop"}),
        ("torchlint check --extend-select TL101,TL20", {"TL201", "TL203"}),
        ("torchlint rule TL20", {"TL201", "TL203"}),
        ("torchlint rule eval", {"eval-without-no-grad"}),
        ("torchlint rules --allow", {"--allow-plugins"}),
        ("torchlint completion ", {"bash", "zsh", "fish"}),
        ("torchlint init --dry", {"--dry-run"}),
    ],
)
def test_a_line_is_completed(complete: Completions, line: str, expected: set[str]) -> None:
    found = {word.removeprefix("TL101,") for word in complete(line)}
    assert expected <= found
    if line.endswith(" "):
        return
    beginning = line.rpartition(" ")[2].rpartition(",")[2]
    assert {word for word in found if word.startswith(beginning)} - {beginning} <= {*expected, "TL2", "TL20"}


def test_every_code_is_offered(complete: Completions) -> None:
    assert {rule.code for rule in all_rules()} <= complete("torchlint --select TL")
    assert {rule.name for rule in all_rules()} <= complete("torchlint rule ")


def test_the_script_starts_no_torchlint(complete: Completions) -> None:
    # There is none on this path, and yet codes are known.
    complete.env["PATH"] = "/usr/bin:/bin"
    assert "TL101" in complete("torchlint rule TL1")


def test_scripts_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torchlint = CommandLine(capsys)
    for shell in SHELLS:
        assert torchlint("completion", shell) == (0, script(shell), "")
        subprocess.run(
            [program(shell), "-n", "/dev/stdin"], input=script(shell), text=True, check=True, timeout=PATIENCE
        )
    wrong = torchlint("completion", "csh")
    assert wrong.status == 2
    assert "invalid choice: 'csh'" in wrong.err
