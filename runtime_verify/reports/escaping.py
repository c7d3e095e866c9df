"""Text from workloads, environments and error messages, made harmless for the place where it is shown."""

from __future__ import annotations

import html
import re

from torchlint.reports.output import visible

# Continuous integration reads a line of a log that begins with one of these as a command.
_LOG_COMMAND = re.compile(r"(?<!\S)(?=::|##\[|##vso\[)")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~>$@#])")
_FENCE = re.compile("`+")


def inline(text: str) -> str:
    """Text for one line of plain output: control characters are shown, and no word begins a command to a CI log."""
    return _LOG_COMMAND.sub(r"\\", visible(text))


def lines(text: str) -> list[str]:
    """Text of several lines, each of them `inline`."""
    return [inline(line) for line in re.split(r"\r\n|\r|\n", text.rstrip("\r\n"))] if text else []


def in_html(text: str) -> str:
    """Text for HTML, as content or inside of quoted attributes, on one line."""
    return _entities(visible(text))


def block_in_html(text: str) -> str:
    """Text of several lines for a `pre`."""
    return "\n".join(_entities(visible(line)) for line in re.split(r"\r\n|\r|\n", text.rstrip("\r\n")))


def _entities(text: str) -> str:
    return html.escape(text).replace("::", "&#58;&#58;").replace("##", "&#35;&#35;")


def in_markdown(text: str) -> str:
    """Text for a line or a table's cell of Markdown, shown as it is: no markup, no HTML, no column, no mention."""
    escaped = _MARKDOWN.sub(r"\\\1", visible(text).lstrip().replace("&", "&amp;").replace("<", "&lt;"))
    escaped = re.sub(r"^([-+=])", r"\\\1", escaped)  # a list, or the underline of a heading
    escaped = re.sub(r"^(\d+)([.)])(?!\S)", r"\1\\\2", escaped)
    return escaped.replace("::", "&#58;&#58;").replace("://", "&#58;//").replace("www.", "www&#46;")


def block_in_markdown(text: str, language: str = "") -> str:
    """Text of several lines as a fenced block that nothing inside of it can close."""
    fence = "`" * max(3, 1 + max(map(len, _FENCE.findall(text)), default=0))
    return "\n".join((fence + language, *lines(text), fence))
