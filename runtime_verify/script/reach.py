"""Whether a run comes to the places of the fixes: a fix that is never executed can bring nothing."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from .exchange import Watched

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from .fixes import Fix


def watched_lines(fix: Fix, source: bytes) -> Watched:
    """The lines of which one has to be executed for a fix to have had an effect: its statement's, or, where the fix
    decorates a function, those of its body."""
    first = last = fix.line
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or node.end_lineno is None:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            head = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if head <= fix.line < node.body[0].lineno:
                return Watched(fix.file, node.body[0].lineno, node.end_lineno)
        elif not hasattr(node, "body") and node.lineno <= fix.line <= node.end_lineno:
            first, last = node.lineno, node.end_lineno
    return Watched(fix.file, first, last)


class Watcher:
    """Watches lines of files in `tree` by a trace function, which slows all Python code."""

    def __init__(self, tree: str, watched: Iterable[Watched]) -> None:
        self.reached: set[int] = set()
        self._waiting: defaultdict[str, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._numbers: set[int] = set()
        for number, lines in enumerate(watched):
            self._numbers.add(number)
            for line in range(lines.first, lines.last + 1):
                self._waiting[os.path.join(tree, lines.file)][line].add(number)

    def start(self) -> None:
        """Watch the frames that begin from now on."""
        if self._numbers:
            sys.settrace(self._on_call)
            threading.settrace(self._on_call)

    def stop(self) -> None:
        """Watch no more."""
        sys.settrace(None)
        threading.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename in self._waiting else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found = self._waiting[frame.f_code.co_filename].get(frame.f_lineno)
            if found:
                self.reached |= found
                if self.reached == self._numbers:
                    self.stop()
        return self._on_line
