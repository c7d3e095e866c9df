"""TL000: the file cannot be parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Level, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics import Module


class SyntaxErrorRule(Rule):
    """A file, or a cell of a notebook, that Python cannot parse.

    ## What it finds
    A file that is no valid Python for the interpreter that torchlint runs on: a syntax error, bytes that the declared
    encoding cannot decode, a NUL byte, nesting that is too deep for the parser, or a notebook that is no JSON or of a
    format before 4. In a notebook the broken cell is reported and the other cells are still linted; magics, shell lines
    and all else that IPython takes are no errors.

    ## Why it costs
    Nothing else can be said about code that cannot be read: every other rule is silent on it, so a gate would pass for
    the wrong reason. That is why this rule is on in every selection that does not ignore it by name.

    ## Example
    ```python
    for images, targets in loader
        loss = criterion(model(images), targets)
    ```

    ## Use instead
    ```python
    for images, targets in loader:
        loss = criterion(model(images), targets)
    ```

    ## When it is fine
    In templates and in test data that is broken on purpose. Exclude those files (`extend-exclude`), or name them in
    `per-file-ignores`. A file that needs a newer grammar than the interpreter at hand is linted by running torchlint
    under that newer Python.

    ## Fix safety
    There is no fix.
    """

    code, name, level = "TL000", "syntax-error", Level.WARNING

    def check(self, module: Module) -> Iterator[Finding]:
        """Nothing: a module that exists has been parsed. The engine reports the files that were not."""
        return iter(())
