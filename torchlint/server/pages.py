"""What a hover shows: the page of the rule under the cursor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lsprotocol import types

from torchlint.comments import find_spans
from torchlint.server.convert import span
from torchlint.suppressions import matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.engine import Registry
    from torchlint.rule import Rule
    from torchlint.server.documents import Part
    from torchlint.server.session import Linted

_DIRECTIVE = re.compile(r"#\s*(?:torchlint\s*:\s*ignore|noqa\s*:)", re.IGNORECASE)
_WORD = re.compile(r"[\w-]+")


def hover(
    part: Part, place: types.Position, linted: Linted | None, registry: Registry, markdown: bool
) -> types.Hover | None:
    """The pages of the rules that a suppression comment names at a place, else of those that have a finding there."""
    rules, where = _named(part, place, registry) or _found(part, place, linted, registry)
    if not rules:
        return None
    text = "\n\n---\n\n".join(page(rule) for rule in rules) if len(rules) < 3 else _list(rules)
    kind = types.MarkupKind.Markdown if markdown else types.MarkupKind.PlainText
    return types.Hover(types.MarkupContent(kind, text), where)


def page(rule: type[Rule]) -> str:
    """A rule's documentation page with its title."""
    fix = f"{rule.fixable.value} fix" if rule.fixable else "no fix"
    return f"## {rule.code} {rule.name}\n\n*{rule.level.value} · {fix} · {rule.family()}*\n\n{rule.page()}\n"


def _list(rules: Iterable[type[Rule]]) -> str:
    return "\n".join(f"- {rule.code} {rule.name}" for rule in rules)


def _named(part: Part, place: types.Position, registry: Registry) -> tuple[list[type[Rule]], types.Range | None] | None:
    """The rules that the word at a place means, if it stands in a suppression comment."""
    offset, content = part.text.offset(place), part.text.content
    line_start = part.text.starts[min(place.line, len(part.text.starts) - 1)]
    line_end = line_start + len(part.text.line(place.line))
    if not _DIRECTIVE.search(content, line_start, line_end):
        return None  # a look at the whole text is only worth it where the line says so
    comment = next(((s, e) for s, e in find_spans(content).comments if s <= offset <= e), None)
    if comment is None:
        return None
    word = next((w for w in _WORD.finditer(content, *comment) if w.start() <= offset <= w.end()), None)
    if word is None:
        return None
    rules = [rule for code, rule in registry.items() if matches(word[0], code, rule.name)]
    return (rules, part.text.span(*word.span())) if rules else None


def _found(
    part: Part, place: types.Position, linted: Linted | None, registry: Registry
) -> tuple[list[type[Rule]], types.Range | None]:
    """The rules of the findings at a place."""
    codes: dict[str, types.Range] = {}
    for finding in linted.report.findings if linted is not None else ():
        where = span(finding, part.text)
        if finding.cell == part.cell and _key(where.start) <= _key(place) <= _key(where.end):
            codes.setdefault(finding.code, where)
    return [registry[code] for code in codes], next(iter(codes.values()), None)


def _key(place: types.Position) -> tuple[int, int]:
    return place.line, place.character
