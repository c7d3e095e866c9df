"""Which comments silence which findings, and which of them turn out to silence nothing."""

from __future__ import annotations

import datetime

import pytest
from sample_rules import QUIET_CODES, REGISTRY, parsed

from torchlint.comments import find_spans
from torchlint.engine import check_module
from torchlint.source import SourceFile, spliced

TODAY = datetime.date(2025, 6, 1)


def lint(text: str, codes: tuple[str, ...] = QUIET_CODES, name: str = "sample.py") -> list[tuple[str, int]]:
    """The (code, line) pairs that are reported."""
    checked = check_module(parsed(text, name), codes, REGISTRY, TODAY)
    assert not checked.errors
    return [(finding.rule.code, finding.node.lineno) for finding in checked.findings]


def messages(text: str, codes: tuple[str, ...] = QUIET_CODES) -> list[str]:
    """The messages about unused suppressions."""
    findings = check_module(parsed(text), codes, REGISTRY, TODAY).findings
    return [finding.message for finding in findings if finding.rule.code == "TL001"]


def repaired(text: str, codes: tuple[str, ...] = QUIET_CODES) -> str:
    """The text without what is unused in its suppressions."""
    findings = check_module(parsed(text), codes, REGISTRY, TODAY).findings
    edits = [edit for f in findings if f.rule.code == "TL001" and f.fix for edit in f.fix.build()]
    assert edits
    return spliced(text, sorted(edits))


@pytest.mark.parametrize(
    "comment",
    [
        "# torchlint: ignore[TL991]",
        "# torchlint: ignore",
        "#torchlint:ignore[TL991]",
        "# torchlint: ignore[tl991]",
        "# torchlint: ignore[slow-call]",
        "# torchlint: ignore[TL99]",
        "# torchlint: ignore[TL991]: the profiler says that this is fine, see #123",
        "# torchlint: ignore[TL991] until=2025-06-01",
        "# torchlint: ignore[TL991, until=2999-01-01]: reason",
        "# torchlint: ignore[TL991] (until=2999-01-01): reason",
        "# type: ignore  # torchlint: ignore[TL991]",
        "# torchlint: ignore[TL991]  # type: ignore",
        "# noqa",
        "# noqa: TL991",
        "# NOQA: E501, TL991",
        "# noqa: E501 TL991",
        "# noqa: TL9",
    ],
)
def test_a_comment_silences_its_line(comment: str) -> None:
    assert lint(f"slow()  {comment}\nslow()\n") == [("TL991", 2)]


@pytest.mark.parametrize(
    "comment", ["# noqa: E501", "# noqa: this is fine", "# noqable", "# torchlint ignore", "# torchlint: off"]
)
def test_other_comments_silence_nothing(comment: str) -> None:
    assert lint(f"slow()  {comment}\n") == [("TL991", 1)]


def test_text_in_strings_is_no_comment() -> None:
    text = "slow(\"# torchlint: ignore[TL991]\", '''\n# noqa''', f\"{1:#x} # noqa\")\n"
    assert lint(text) == [("TL991", 1)]


@pytest.mark.parametrize("line", range(2, 6))
def test_any_line_of_a_statement_serves(line: int) -> None:
    lines = ["before = 1", "value = outer(", "    1,", "    slow(),", ")", "slow()"]
    lines[line - 1] += "  # torchlint: ignore[TL991]"
    assert lint("\n".join(lines) + "\n") == [("TL991", 6)]


def test_a_compound_statement_is_its_header() -> None:
    text = "@decorator  # torchlint: ignore[TL992]\ndef bad(\n    a,\n):\n    # a comment\n    slow()\n"
    assert lint(text) == [("TL991", 6)]
    assert lint("def bad(\n    a,\n):  # noqa: TL992\n    pass\n") == []
    assert lint("def bad():\n    # noqa: TL992\n    pass\n") == [("TL992", 1)]


def test_a_suite_on_the_header_line_is_silenced_with_it() -> None:
    assert lint("if (a and\n    slow()): slow()  # noqa\n") == []


def test_ignore_file_stands_above_the_first_statement() -> None:
    assert lint('"""Docstring."""\n# torchlint: ignore-file\nimport os\n\nslow()\n') == []
    assert lint("# torchlint: ignore-file[TL992]\ndef bad():\n    slow()\n") == [("TL991", 3)]
    text = "import os\n# torchlint: ignore-file\nslow()\n"
    assert lint(text) == [("TL001", 2), ("TL991", 3)]
    assert "below the first statement" in messages(text)[0]


def test_an_expired_suppression_silences_nothing_and_says_when_it_ended() -> None:
    text = "slow()  # torchlint: ignore[TL991] until=2025-05-31: soon\n"
    assert lint(text) == [("TL991", 1), ("TL001", 1)]
    assert messages(text) == ["this suppression expired on 2025-05-31"]
    assert "is no date" in messages("slow()  # torchlint: ignore[TL991] until=2025-13-01\n")[0]


def test_expiry_makes_the_answer_depend_on_the_day() -> None:
    assert check_module(parsed("x = 1  # torchlint: ignore until=2999-01-01\n"), QUIET_CODES, REGISTRY, TODAY).expires
    assert not check_module(parsed("x = 1  # torchlint: ignore\n"), QUIET_CODES, REGISTRY, TODAY).expires


def test_unused_codes_are_reported_and_deleted_one_by_one() -> None:
    text = "slow()  # torchlint: ignore[TL991, TL992, until=2999-01-01]: why\n"
    assert messages(text) == ["nothing here is silenced by TL992"]
    assert repaired(text) == "slow()  # torchlint: ignore[TL991, until=2999-01-01]: why\n"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("x = 1  # torchlint: ignore[TL991]\ny = 2\n", "x = 1\ny = 2\n"),
        ("x = 1  # torchlint: ignore[TL991]  # type: ignore\n", "x = 1  # type: ignore\n"),
        ("x = 1  # why  # torchlint: ignore[TL991]\r\n", "x = 1  # why\r\n"),
        ("x = 1\n    # torchlint: ignore[TL991]: why\ny = 2\n", "x = 1\ny = 2\n"),
        ("# torchlint: ignore-file[TL991]", ""),
        ("é = '# noqa'  # torchlint: ignore[TL991]", "é = '# noqa'"),
    ],
)
def test_deleting_a_suppression_keeps_everything_else(text: str, fixed: str) -> None:
    assert repaired(text) == fixed


def test_suppressions_are_judged_by_the_rules_of_the_run() -> None:
    text = "x = 1  # torchlint: ignore[TL992]\ny = 2  # torchlint: ignore\n"
    assert lint(text, ("TL001", "TL991")) == []
    assert lint(text, tuple(code for code in REGISTRY if code not in ("TL993",))) == [("TL001", 1)]


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("x = 1  # torchlint: ignore\n", "x = 1\n"),
        ("x = 1  # torchlint: ignore[TL]\n", "x = 1\n"),
        ("x = 1  # torchlint: ignore  # why\n", "x = 1  # why\n"),
        ("# torchlint: ignore-file\nx = 1\n", "x = 1\n"),
        ("f(  # torchlint: ignore\n    1,  # torchlint: ignore: once more\n)\n", "f(\n    1,\n)\n"),
        ("x = 1  # torchlint: ignore\nslow()  # torchlint: ignore\n", "x = 1\nslow()  # torchlint: ignore\n"),
    ],
)
def test_a_suppression_of_everything_does_not_hide_that_it_is_unused(text: str, fixed: str) -> None:
    sound = {code: rule for code, rule in REGISTRY.items() if code != "TL993"}
    findings = check_module(parsed(text), sound, sound, TODAY).findings
    assert spliced(text, sorted(edit for f in findings if f.fix for edit in f.fix.build())) == fixed
    assert check_module(parsed(fixed), sound, sound, TODAY).findings == ()


def test_what_is_silenced_as_a_whole_is_not_looked_into() -> None:
    sound = {code: rule for code, rule in REGISTRY.items() if code != "TL993"}
    text = "slow()  # torchlint: ignore  # torchlint: ignore[TL992]\n"
    assert check_module(parsed(text), sound, sound, TODAY).findings == ()


def test_unknown_codes_are_named() -> None:
    assert messages("slow()  # torchlint: ignore[TL991, TL777]\n") == ["there is no rule TL777"]


def test_noqa_is_never_called_unused() -> None:
    assert lint("x = 1  # noqa: TL991\ny = 2  # noqa\n") == []


def test_tl001_itself_can_be_silenced() -> None:
    assert lint("x = 1  # torchlint: ignore[TL991]  # noqa: TL001\n") == []


def test_carriage_returns_and_form_feeds_do_not_shift_lines() -> None:
    assert lint("\f\nx = 1\rslow()  # noqa\r\nslow()\n") == [("TL991", 4)]


def test_comments_of_nested_fstrings() -> None:
    text = (
        "a = f\"{x:#x} # {y!r:>{w}}\" # one\nb = f'''{\n1}#''' # two\n"
        'c = "\\"#" + r"\\"#" # three\nd = f"{{#}}" # four'
    )
    assert [text[start:end] for start, end in find_spans(text).comments] == ["# one", "# two", "# three", "# four"]


def test_positions_of_a_suppression_count_characters() -> None:
    source_line = "é = '日本'  # torchlint: ignore[TL991]"
    finding = check_module(parsed(source_line), QUIET_CODES, REGISTRY, TODAY).findings[0]
    source = SourceFile.from_text(parsed("").source.path, source_line)
    start, end = source.span(finding.node)
    assert source_line[start:end] == "# torchlint: ignore[TL991]"
