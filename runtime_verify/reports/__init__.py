"""A table of measured rows as text: for the terminal, for other programs, for a README, for a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..records import Table

FORMATS = ("table", "json", "markdown", "html")


def render(table: Table, form: str, *, color: bool = False, width: int = 120) -> str:
    """The table in one of `FORMATS`, ending in a newline.

    `color` and `width` (in characters) are for "table" alone: styles are written only with `color`, which the caller
    decides (a terminal, no NO_COLOR). Every other text is the same wherever it goes. Raises ValueError for a format
    that there is not.
    """
    if form == "table":
        from .terminal import render_terminal

        return render_terminal(table, color=color, width=width)
    if form == "json":
        from .json import render_json

        return render_json(table)
    if form == "markdown":
        from .markdown import render_markdown

        return render_markdown(table)
    if form == "html":
        from .html import render_html

        return render_html(table)
    raise ValueError(f"no such format: {form!r}; there are {', '.join(FORMATS)}")
