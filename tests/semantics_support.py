"""Small projects for the tests of the semantics: sources in, modules with the whole project's facts out."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.runner import ROUNDS
from torchlint.semantics import FileSummary, Linked, Module, ProjectLayout, Value, link, relevant
from torchlint.source import SourceFile

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOWHERE = Path("no", "such", "folder")


def project(files: Mapping[str, str], root: Path = _NOWHERE, *, screened: bool = True) -> dict[str, Module]:
    """The modules of a project, by path, with their facts linked in the rounds in which a run links them.

    Sources are dedented. `root` matters only where metadata files (which are not given here) divide a repository. As in
    a run, files that hold nothing of interest have no module while `screened` is on.
    """
    sources = {path: SourceFile.from_text(Path(path), textwrap.dedent(text)) for path, text in files.items()}
    layout = ProjectLayout(root, files)
    modules = {
        path: Module(source, source.parse(), layout, path)
        for path, source in sources.items()
        if not screened or relevant(path, source.raw)
    }
    linked: dict[str, Linked] = {}
    summaries: dict[str, FileSummary] = {}
    for number in range(ROUNDS):
        for path, module in modules.items():
            if number:
                module.attach(linked[path])
            if number < 2:
                summaries[path] = module.summary() if number else module.declarations()
            elif module.linked.again:
                summaries[path] = summaries[path].revised(module.revision())
        linked = link(layout, summaries, last=number == ROUNDS - 1)
    for path, module in modules.items():
        module.attach(linked[path])
    return modules


def module(text: str) -> Module:
    """The module of a project that is one file."""
    return project({"main.py": text}, screened=False)["main.py"]


def node(module: Module, code: str, number: int = 0) -> ast.expr:
    """The expression whose source text is `code`: the first in source order, or the one with that number."""
    found = [
        candidate
        for candidate in ast.walk(module.tree)
        if isinstance(candidate, ast.expr) and module.source.segment(candidate) == code
    ]
    found.sort(key=lambda candidate: (candidate.lineno, candidate.col_offset))
    if not found:
        raise AssertionError(f"no expression reads {code!r}")
    return found[number]


def value(module: Module, code: str, number: int = -1) -> Value:
    """What flow shows an expression to be: its last occurrence, if no other is asked for."""
    return module.value(node(module, code, number))


def kind(module: Module, code: str, number: int = -1) -> str:
    return value(module, code, number).kind


def is_hot(module: Module, code: str, number: int = 0) -> bool:
    return module.hot(node(module, code, number))
