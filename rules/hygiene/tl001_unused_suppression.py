"""TL001: a suppression comment that silences nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.rule import Finding, Level, Rule, Safety

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics import Module


class UnusedSuppression(Rule):
    """A `torchlint: ignore` comment that silences nothing.

    ## What it finds
    A `# torchlint: ignore` or `# torchlint: ignore-file` comment of which all or some codes silence no finding; one
    whose `until=` date has passed, which no longer silences anything; one that names a rule that does not exist; and an
    `ignore-file` below the first statement, where it has no effect. A comment is judged by the rules of the run alone:
    `--select TL101` says nothing about a suppression of TL201. `# noqa` comments belong to several tools and are left
    alone.

    ## Why it costs
    A suppression that outlives its reason hides the next real finding on its line, and readers take it for a warning
    about code that is long gone.

    ## Example
    ```python
    mask = torch.zeros(n, device=device)  # torchlint: ignore[TL201]
    ```

    ## Use instead
    ```python
    mask = torch.zeros(n, device=device)
    ```

    ## When it is fine
    When the finding depends on something that changes from run to run, such as a target torch version that a matrix of
    jobs sets. Then name TL001 in `per-file-ignores`.

    ## Fix safety
    Safe: the comment, or the codes in it that silence nothing, are deleted, and no code changes. A directive with other
    comments on its line leaves those where they are.
    """

    code, name, level = "TL001", "unused-suppression", Level.INFO
    fixable = Safety.SAFE

    def check(self, module: Module) -> Iterator[Finding]:
        """Nothing: which suppressions are unused is known after all other rules have run, so the engine reports it."""
        return iter(())
