"""What reports look like: plain, escaped, aligned, and in the shape that other tools read."""

from __future__ import annotations

import io
import json as standard_json

import pytest

from torchlint.diagnostics import Diagnostic, EditRecord, Excerpt, FileReport, FixRecord, Location
from torchlint.repair import unified
from torchlint.reports import concise, diff, full, json, statistics, summary
from torchlint.reports.output import Output, visible

SAFE = FixRecord("safe", "call `fast`", "", (EditRecord("fast", Location(2, 5), Location(2, 9)),))
UNSAFE = FixRecord("unsafe", "drop it", "values change")


def finding(
    line: str = "x = slow()",
    column: int = 5,
    end: int = 11,
    *,
    row: int = 2,
    message: str = "`slow` is slow",
    level: str = "warning",
    fix: FixRecord | None = None,
    cell: int = 0,
) -> Diagnostic:
    excerpt = Excerpt(row - 1, ("a = 1", line, "b = 2"))
    place, end_place = Location(row, column), Location(row, end)
    return Diagnostic("TL991", "slow-call", message, level, place, end_place, cell, excerpt, fix)


def report(*findings: Diagnostic, path: str = "/project/net.py", **others: object) -> FileReport:
    return FileReport(path, findings, **others)  # type: ignore[arg-type]


def plain(module: object, reports: list[FileReport]) -> str:
    stream = io.StringIO()
    module.write(reports, Output(stream, color=False))  # type: ignore[attr-defined]
    return stream.getvalue()


def test_concise_is_one_line_for_each_finding() -> None:
    text = plain(concise, [report(finding(), finding(row=7, fix=SAFE), finding(row=1, cell=3))])
    assert text.splitlines() == [
        "/project/net.py:2:5: TL991 `slow` is slow",
        "/project/net.py:7:5: TL991 [*] `slow` is slow",
        "/project/net.py:cell 3:1:5: TL991 `slow` is slow",
    ]


def test_full_underlines_the_place_and_says_what_the_fix_does() -> None:
    text = plain(full, [report(finding(fix=UNSAFE))])
    assert text.splitlines() == [
        "/project/net.py:2:5: TL991 [*] `slow` is slow",
        "  |",
        "1 | a = 1",
        "2 | x = slow()",
        "  |     ^^^^^^",
        "3 | b = 2",
        "  = unsafe fix: drop it (values change)",
        "",
    ]


@pytest.mark.parametrize(
    ("line", "column", "end", "blanks", "marks"),
    [
        ("\tslow()", 2, 8, 4, 6),
        ("日本 = slow()", 6, 12, 7, 6),
        ("e\u0301 = slow()", 6, 12, 4, 6),
        ("\x1b[31m slow()", 7, 13, 9, 6),
        ("slow(", 1, 1, 0, 1),
    ],
)
def test_the_underline_stands_below_what_a_terminal_shows(
    line: str, column: int, end: int, blanks: int, marks: int
) -> None:
    lines = plain(full, [report(finding(line, column, end))]).splitlines()
    assert lines[4] == "  | " + " " * blanks + "^" * marks


def test_a_place_that_spans_lines_is_underlined_to_the_end_of_its_first() -> None:
    item = finding("x = slow(  ")
    spanning = Diagnostic(
        *(getattr(item, field) for field in item.__struct_fields__[:5]), Location(4, 2), 0, item.excerpt
    )
    assert "  |     ^^^^^\n" in plain(full, [report(spanning)])


def test_a_long_line_is_cut_around_the_place() -> None:
    lines = plain(full, [report(finding("y = 0; " * 1000 + "slow()", 7001, 7007))]).splitlines()
    shown, marks = lines[3], lines[4]
    assert len(shown) < 200
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "slow()"


def test_control_characters_are_shown_never_sent() -> None:
    assert visible("a\x1b[31mb\x00\r\n\u202e\ud800é日") == "a\\x1b[31mb\\x00\\x0d\\x0a\\u202e\\ud800é日"
    evil = report(finding("x = '\x1b]0;title\x07'", message="[red]\x1b[2J[/red]"), path="/p/[bold]\x1b[1m.py")
    for module in (full, concise):
        text = plain(module, [evil])
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "[red]" in text


def test_markup_in_texts_is_not_interpreted_on_a_terminal() -> None:
    stream = io.StringIO()
    full.write([report(finding("x = '[red]a[/red]' # :smile:", message="[bold]m[/bold]"))], Output(stream, color=True))
    text = stream.getvalue()
    assert "\x1b[" in text
    assert "[red]a[/red]" in text
    assert ":smile:" in text
    assert "[bold]m[/bold]" in text


def test_json_has_the_shape_of_ruffs() -> None:
    text = json.render([report(finding(fix=SAFE, level="info"), finding(cell=2))])
    first, second = standard_json.loads(text)
    assert first == {
        "cell": None,
        "code": "TL991",
        "name": "slow-call",
        "message": "`slow` is slow",
        "level": "info",
        "filename": "/project/net.py",
        "location": {"row": 2, "column": 5},
        "end_location": {"row": 2, "column": 11},
        "url": "https://torchlint.readthedocs.io/rules/tl991/",
        "fix": {
            "applicability": "safe",
            "message": "call `fast`",
            "edits": [
                {"content": "fast", "location": {"row": 2, "column": 5}, "end_location": {"row": 2, "column": 9}}
            ],
        },
    }
    assert (second["cell"], second["fix"]) == (2, None)
    assert standard_json.loads(json.render([])) == []
    assert standard_json.loads(json.render([report(finding(), path="/p/\udcff.py")]))[0]["filename"] == "/p/\\udcff.py"


def test_statistics_count_each_rule() -> None:
    reports = [report(finding(fix=SAFE), finding()), report(finding())]
    assert plain(statistics, reports) == "3  TL991  [-] slow-call\n"
    assert standard_json.loads(statistics.render_json(reports)) == [
        {"count": 3, "code": "TL991", "name": "slow-call", "fixable": 1}
    ]
    assert plain(statistics, []) == ""


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        ([], "All checks passed in 2 files."),
        ([report(finding())], "Found 1 issue in 2 files."),
        ([report(finding(fix=SAFE))] * 2, "Found 2 issues (2 fixable with `--fix`) in 2 files."),
        ([report(finding(fix=UNSAFE))], "Found 1 issue (1 fixable with `--fix --unsafe-fixes`) in 2 files."),
        (
            [report(finding(fix=UNSAFE), finding(fix=SAFE), finding())],
            "Found 3 issues (1 fixable with `--fix`, 1 more with `--unsafe-fixes`) in 2 files.",
        ),
        ([report(fixed={"TL991": 2})], "Fixed 2 issues; nothing is left in 2 files."),
        ([report(finding(), fixed={"TL991": 1})], "Fixed 1 issue. Found 1 issue in 2 files."),
    ],
)
def test_the_summary_counts(reports: list[FileReport], line: str) -> None:
    assert summary.found_line(reports, 2) == line


def test_a_diff_keeps_newlines_and_says_where_the_last_one_is_missing() -> None:
    text = unified("net.py", "a\r\nb\rc\nlast", "a\r\nB\rc\nlast")
    assert text.startswith("--- net.py\n+++ net.py\n@@ ")
    assert " a\r\n-b\rc\n+B\rc\n last\n\\ No newline at end of file\n" in text
    assert plain(diff, [report(diff=text), report()]) == text
