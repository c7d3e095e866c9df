"""Small rules for tests of the engine: what they find is plain to see in the text that is linted."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.rule import Finding, Fix, Level, Rule, Safety
from torchlint.rules.hygiene.tl000_syntax_error import SyntaxErrorRule
from torchlint.rules.hygiene.tl001_unused_suppression import UnusedSuppression
from torchlint.semantics import Module, ProjectLayout
from torchlint.source import Edit, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator


class SlowCall(Rule):
    """A call of `slow`, which `fast` replaces."""

    code, name, level = "TL991", "slow-call", Level.WARNING
    fixable = Safety.SAFE

    def check(self, module: Module) -> Iterator[Finding]:
        for call in module.calls_named("slow"):
            start, end = module.source.span(call.func)
            fix = Fix("call `fast`", Safety.SAFE, lambda start=start, end=end: [Edit(start, end, "fast")])
            yield self.finding(call, "`slow` is slow", fix)


class Definition(Rule):
    """A function whose name starts with `bad`."""

    code, name, level = "TL992", "bad-definition", Level.INFO

    def check(self, module: Module) -> Iterator[Finding]:
        for function in module.functions:
            if function.name.startswith("bad"):
                assert isinstance(function.node, ast.FunctionDef)
                yield self.finding(function.node, "a bad function")


class Raises(Rule):
    """A rule with a bug."""

    code, name, level = "TL993", "raises", Level.WARNING

    def check(self, module: Module) -> Iterator[Finding]:
        raise ValueError("two\nlines")
        yield


class Kills(Rule):
    """A rule that ends the process on a file that says so, as a crash of the interpreter would."""

    code, name, level = "TL994", "kills", Level.WARNING

    def check(self, module: Module) -> Iterator[Finding]:
        if "crash_here" in module.source.text:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return iter(())


REGISTRY: dict[str, type[Rule]] = {
    rule.code: rule for rule in (SyntaxErrorRule, UnusedSuppression, SlowCall, Definition, Raises, Kills)
}
QUIET_CODES = ("TL000", "TL001", "TL991", "TL992")


def parsed(text: str, name: str = "sample.py") -> Module:
    """The module of a text that stands alone in its project."""
    source = SourceFile.from_text(Path("/project", name), text)
    return Module(source, source.parse(), ProjectLayout(Path("/project"), (name,)), name)
