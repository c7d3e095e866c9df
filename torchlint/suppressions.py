"""Comments that silence findings: `# torchlint: ignore[TL101]`, `# torchlint: ignore-file`, `# noqa: TL101`.

A comment silences the findings of the statement that its line belongs to, whichever line of it holds the comment. For a
compound statement (`def`, `with`, `for` …) that is the header. An `ignore-file` stands above the first statement.
"""

from __future__ import annotations

import ast
import datetime
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from torchlint.comments import find_spans

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from torchlint.source import SourceFile

_OTHER_COMMENT = r"\s\#\s|\#\s*(?:noqa|type:|torchlint:|pylint:|fmt:)"
_DIRECTIVE = re.compile(
    rf"\#\s*torchlint\s*:\s*(?P<kind>ignore-file|ignore)(?![\w-])(?:\s*\[(?P<codes>[^\]]*)\])?(?P<rest>(?:(?!{_OTHER_COMMENT}).)*)"
)
_NOQA = re.compile(r"\#\s*noqa(?!\w)(?P<colon>\s*:\s*(?P<codes>[A-Z]+[0-9]*(?:[,\s]+[A-Z]+[0-9]+)*)?)?", re.IGNORECASE)
_UNTIL = re.compile(r"\(?\s*until\s*=\s*(?P<date>[\w-]+)\s*\)?", re.IGNORECASE)
_CODE = re.compile(r"(?P<letters>[A-Z]{2,8})\d{0,4}", re.IGNORECASE)


class Lines(NamedTuple):
    """An inclusive range of line numbers."""

    first: int
    last: int

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.first <= line <= self.last


@dataclass(slots=True)
class Directive:
    """One suppression comment: the offsets of its text, what it names (None: everything) and what it silenced.

    `until` is the text of the expiry date, "" without one; `void` says why the directive silences nothing at all.
    """

    kind: str
    start: int
    end: int
    line: int
    names: tuple[str, ...] | None
    until: str = ""
    void: str = ""
    reach: tuple[Lines, ...] = ()
    used: set[str] = field(default_factory=set)
    silenced_any: bool = False

    def silences(self, line: int, code: str, name: str) -> bool:
        """Whether this directive silences a finding of the rule at `line`; remembers that it did."""
        if self.void or not (self.kind == "ignore-file" or any(line in lines for lines in self.reach)):
            return False
        matching = [wanted for wanted in self.names or () if matches(wanted, code, name)]
        self.used.update(matching)
        found = self.names is None or bool(matching)
        self.silenced_any |= found
        return found

    def spells(self, code: str, name: str) -> bool:
        """Whether the directive names just this rule, by its code or name."""
        return any(wanted.upper() == code or wanted.lower() == name for wanted in self.names or ())


@dataclass(frozen=True, slots=True)
class UnusedDirective:
    """A suppression that silences nothing: where it is, why, and the replacement that removes what is unused."""

    start: int
    end: int
    message: str
    edit: tuple[int, int, str]


def matches(selector: str, code: str, name: str) -> bool:
    """Whether a code, a prefix of codes or a rule name means the rule with this code and name."""
    return has_prefix(code, selector.upper()) or selector.lower() == name


def has_prefix(code: str, prefix: str) -> bool:
    """Whether a prefix of codes means this code: all of its letters, and its digits as far as the prefix has some."""
    found = _CODE.fullmatch(prefix)
    return found is not None and code.startswith(prefix) and code[found.end("letters")].isdigit()


class Suppressions:
    """The suppression comments of one file, and which of them were used."""

    def __init__(self, directives: list[Directive]) -> None:
        self.directives = directives

    @classmethod
    def read(cls, source: SourceFile, tree: ast.Module, today: datetime.date) -> Suppressions:
        """The suppressions of a parsed file. Files that hold none of the words cost two substring searches."""
        if "torchlint" not in source.text and not _NOQA.search(source.text):
            return cls([])
        comments = find_spans(source.python).comments
        directives = [directive for span in comments for directive in _directives(source, span)]
        if directives:
            _judge(source, tree, directives, today)
        return cls(directives)

    @property
    def expire(self) -> bool:
        """Whether what is silenced depends on the day."""
        return any(directive.until for directive in self.directives)

    def silence(self, line: int, code: str, name: str) -> bool:
        """Whether a finding of the rule at `line` is silenced."""
        # Every directive is asked, so that two comments for one finding both count as used.
        answers = [directive.silences(line, code, name) for directive in self.directives]
        return any(answers)

    def silence_unused(self, line: int, code: str, name: str) -> bool:
        """Whether a finding that a suppression at `line` is unused is itself silenced; `code` is the rule of such
        findings.

        A comment that means this rule only because it means every one has to have silenced something else: otherwise
        it would hide that it is unused.
        """
        asked = [d for d in self.directives if d.kind == "noqa" or d.silenced_any or d.spells(code, name)]
        return any(directive.silences(line, code, name) for directive in asked)

    def unused(
        self,
        source: SourceFile,
        enabled: Collection[str],
        known: Mapping[str, str],
        judge_bare: bool,
        judge_unknown: bool = True,
    ) -> Iterator[UnusedDirective]:
        """The directives that silence nothing, judged by the `enabled` codes alone.

        `known` maps every code to its name; `judge_bare` says whether enough rules ran to judge a bare `ignore`,
        `judge_unknown` whether a name that means no rule is a mistake, and not one of a plugin that is not loaded.
        """
        for directive in self.directives:
            if directive.kind == "noqa":
                continue
            whole = _delete_comment(source, directive)
            if directive.void:
                yield UnusedDirective(directive.start, directive.end, directive.void, whole)
            elif directive.names is None:
                if judge_bare and not directive.silenced_any:
                    yield UnusedDirective(directive.start, directive.end, "this suppression silences nothing", whole)
            else:
                yield from _unused_names(source, directive, enabled, known, judge_unknown)


def _directives(source: SourceFile, span: tuple[int, int]) -> Iterator[Directive]:
    start, end = span
    comment = source.text[start:end]
    if "torchlint" not in comment and "noqa" not in comment.lower():
        return
    line = source.position(start)[0]
    for found in _DIRECTIVE.finditer(comment):
        expiry = _UNTIL.search(found["codes"] or "") or _UNTIL.search(found["rest"])
        listed = _UNTIL.sub("", found["codes"]) if found["codes"] is not None else None
        names = None if listed is None else tuple(re.findall(r"[\w-]+", listed)) or None
        stop = start + len(found.group().rstrip()) + found.start()
        yield Directive(
            found["kind"].lower(), start + found.start(), stop, line, names, expiry["date"] if expiry else ""
        )
    for found in _NOQA.finditer(comment):
        listed = found["codes"]
        if found["colon"] and not listed:
            continue
        names = None if listed is None else tuple(name for name in re.split(r"[,\s]+", listed) if _CODE.fullmatch(name))
        if names is None or names:
            yield Directive("noqa", start + found.start(), start + found.end(), line, names)


def _judge(source: SourceFile, tree: ast.Module, directives: list[Directive], today: datetime.date) -> None:
    """Set each directive's reach, and why it is void where it is."""
    ranges = statement_lines(source, tree)
    first = _first_statement_line(tree)
    for directive in directives:
        directive.reach = (Lines(directive.line, directive.line), *lines_around(ranges, directive.line))
        if directive.kind == "ignore-file" and directive.line >= first:
            directive.void = "`ignore-file` has no effect below the first statement: move it to the top of the file"
        elif directive.until:
            directive.void = _expiry(directive.until, today)


def _expiry(until: str, today: datetime.date) -> str:
    try:
        last_day = datetime.date.fromisoformat(until)
    except ValueError:
        return f"this suppression silences nothing: `until={until}` is no date (write until=YYYY-MM-DD)"
    return f"this suppression expired on {last_day.isoformat()}" if today > last_day else ""


def _first_statement_line(tree: ast.Module) -> int:
    """The first line of code behind the module's docstring, or behind a notebook's magics: constants stand for them."""
    for statement in tree.body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return _first_line(statement)
    return 1 << 60


def statement_lines(source: SourceFile, tree: ast.Module) -> list[Lines]:
    """The lines of every statement; of a compound statement those of its header, decorators included."""
    ranges: list[Lines] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        parent = waiting.pop()
        for suite in (getattr(parent, name, ()) for name in ("body", "orelse", "finalbody", "handlers", "cases")):
            for child in suite if isinstance(suite, list) else ():
                waiting.append(child)
                if isinstance(child, ast.stmt):
                    ranges.append(Lines(_first_line(child), _last_line(source, child)))
    ranges.sort()
    return ranges


def lines_around(ranges: list[Lines], line: int) -> Iterator[Lines]:
    """Those of the sorted `ranges` of statements that hold `line`, last first."""
    # Statements overlap on their boundary lines at most, so the search ends at the first one that lies above.
    for index in range(bisect_right(ranges, (line, 1 << 60)) - 1, -1, -1):
        if ranges[index].last < line:
            return
        yield ranges[index]


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", ())
    return min(statement.lineno, *(decorator.lineno for decorator in decorators)) if decorators else statement.lineno


def _last_line(source: SourceFile, statement: ast.stmt) -> int:
    """The last line of a simple statement, or of a compound statement's header."""
    if isinstance(statement, ast.Match):
        return max(statement.subject.end_lineno or 0, statement.lineno)
    body: list[ast.stmt] = getattr(statement, "body", [])
    if not body:
        return max(statement.end_lineno or 0, statement.lineno)
    first = _first_line(body[0])
    if first == body[0].lineno and _has_code(source.line(first).encode()[: body[0].col_offset].decode(errors="ignore")):
        return first
    last = first - 1
    while last > statement.lineno and not _has_code(source.line(last)):
        last -= 1
    return max(last, statement.lineno)


def _has_code(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def _unused_names(
    source: SourceFile,
    directive: Directive,
    enabled: Collection[str],
    known: Mapping[str, str],
    judge_unknown: bool,
) -> Iterator[UnusedDirective]:
    names = directive.names or ()
    unknown = [name for name in names if not any(matches(name, code, known[code]) for code in known)]
    # The rules of a prefix have all run, or the prefix is not judged.
    judged = [name for name in names if all(code in enabled for code in known if matches(name, code, known[code]))]
    unused = [name for name in judged if name not in directive.used and (judge_unknown or name not in unknown)]
    if not unused:
        return
    parts = []
    if silent := [name for name in unused if name not in unknown]:
        parts.append(f"nothing here is silenced by {', '.join(silent)}")
    if unknown and judge_unknown:
        parts.append(f"there is no rule {', '.join(unknown)}")
    kept = [name for name in names if name not in unused]
    edit = rewrite_names(source, directive, kept) if kept else _delete_comment(source, directive)
    yield UnusedDirective(directive.start, directive.end, "; ".join(parts), edit)


def rewrite_names(source: SourceFile, directive: Directive, kept: Sequence[str]) -> tuple[int, int, str]:
    """The edit that makes a directive name these codes; it has to have a bracket."""
    comment = source.text[directive.start : directive.end]
    opening, closing = comment.index("[") + 1, comment.index("]")
    expiry = _UNTIL.search(comment, opening, closing)
    listed = ", ".join([*kept, expiry.group().strip()] if expiry else kept)
    return directive.start + opening, directive.start + closing, listed


def _delete_comment(source: SourceFile, directive: Directive) -> tuple[int, int, str]:
    """The deletion of a directive: with its whole line where nothing else is on it."""
    text, start, end = source.text, directive.start, directive.end
    line_start = source.line_starts[bisect_right(source.line_starts, start) - 1]
    line_end = line_start + len(source.line(directive.line))
    before, after = text[line_start:start], text[end:line_end]
    if after.strip():
        # Another comment follows on the line and takes this one's place.
        return start, end + len(after) - len(after.lstrip()), ""
    if before.strip():
        return line_start + len(before.rstrip()), line_end, ""
    if not source.is_last_line(directive.line):
        return line_start, source.line_starts[directive.line], ""
    # The last line of a cell: the newline before it goes too, unless the comment is all that the cell holds.
    if source.notebook is not None and source.place(directive.line)[1] > 1:
        line_start = source.line_starts[directive.line - 2] + len(source.line(directive.line - 1))
    return line_start, line_end, ""
