"""Writes what the documentation takes from the code: a page for each rule, and tables of rules, options and keys.

    python docs/generate.py

A page is what `torchlint rule TL101` prints, with what was measured of the rule last. A table stands between two marker
comments; the rest of its file is written by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest import mock

import msgspec

from torchlint import Rule, all_rules, cli
from torchlint.config import KEYS, Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCS = Path(__file__).resolve().parent
README = DOCS.parent / "README.md"
PAGES = DOCS / "rules"
# The group of arguments that verbs share with `torchlint check`.
SETTINGS = "settings"

_CODE = re.compile(r"(`[^`]*`)")


def generated() -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    files = {PAGES / f"{rule.code.lower()}.md": _page(rule) for rule in all_rules()}
    return files | {path: _filled(path, name, make()) for path, (name, make) in TABLES.items()}


def _filled(path: Path, name: str, table: str) -> str:
    """The text of a file with a table between the markers of that name."""
    markers = rf"(?<=<!-- {name}, by docs/generate\.py -->\n).*?(?=<!-- end of {name} -->)"
    text, count = re.subn(markers, lambda _: table, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{path}: holds {count} places for {name}, not one")
    return text


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (header, *rows)]
    return "".join([lines[0], f"|{'---|' * len(header)}\n", *lines[1:]])


# Rules


def _page(rule: type[Rule]) -> str:
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        cli.main(["rule", rule.code])
    return page.getvalue()


def _readme_rules() -> str:
    """The rules in short, as the README lists them."""
    rows = []
    for rule in all_rules():
        opt_in = "" if rule.default else " (opt-in)"
        rows.append([_link(rule, "docs/rules/"), rule.name, _summary(rule), rule.level.value + opt_in, _fix(rule)])
    return _table(["code", "name", "what it finds", "level", "fix"], rows)


def _site_rules() -> str:
    """The rules with all that one may filter them by."""
    rows = [
        [
            *(_link(rule, ""), rule.name, _summary(rule), rule.family(), rule.level.value),
            *(_fix(rule), "on" if rule.default else "opt-in"),
        ]
        for rule in all_rules()
    ]
    return _table(["code", "name", "what it finds", "family", "level", "fix", "default"], rows)


def _link(rule: type[Rule], folder: str) -> str:
    return f"[{rule.code}]({folder}{rule.code.lower()}.md)"


def _summary(rule: type[Rule]) -> str:
    return " ".join(rule.page().split("\n\n")[0].split())


def _fix(rule: type[Rule]) -> str:
    return rule.fixable.value if rule.fixable else "none"


# The command line


def _options() -> str:
    """The arguments of every verb."""
    return "\n".join(_verb(verb, _parser(verb)) for verb in cli.VERBS) + "\n"


class _Parser(Exception):  # noqa: N818  (it is what is looked for)
    """A parser that was about to be used."""


def _parser(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb, caught as the verb is about to use it. Raises ValueError if it uses none."""

    def caught(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _Parser(parser)

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", caught),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", caught),
    ):
        try:
            cli.main([verb, "--help"])
        except _Parser as found:
            parser: argparse.ArgumentParser = found.args[0]
            return parser
    raise ValueError(f"torchlint {verb}: reads its arguments without a parser, so that its options cannot be listed")


def _verb(verb: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"## torchlint {verb}\n", f"{_escaped(' '.join((parser.description or '').split()))}\n"]
    groups = dict(_groups(parser))
    if verb == "check":
        for title, actions in groups.items():
            parts += [f"### {title.capitalize()}\n", _arguments(actions, parser)]
        return "\n".join(parts)
    settings = groups.pop(SETTINGS, None)
    parts.append(_arguments([action for actions in groups.values() for action in actions], parser))
    if settings:
        parts.append(f"It also takes the [settings](#{SETTINGS}) of `torchlint check`.\n")
    return "\n".join(parts)


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """The titles of the groups of arguments, each with those that `--help` shows."""
    # argparse has no public way to list what a parser knows.
    for group in parser._action_groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if shown:
            yield (group.title or "").partition(" (")[0], shown


def _arguments(actions: list[argparse.Action], parser: argparse.ArgumentParser) -> str:
    return _table(["argument", "meaning"], [[_argument(action), _meaning(action, parser)] for action in actions])


def _argument(action: argparse.Action) -> str:
    """The names of an argument, with what to put behind them."""
    metavar = action.metavar
    if action.choices is not None and metavar is None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    elif metavar is None:
        metavar = action.dest.upper() if action.option_strings else action.dest
    value = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    if action.option_strings and action.nargs == argparse.OPTIONAL:
        value = f"[{value}]"
    if not action.option_strings:
        return f"`{value}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings[:-1])
    last = action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {value}"
    return f"{names}, `{last}`" if names else f"`{last}`"


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return _escaped((action.help or "") % {**vars(action), "prog": parser.prog})


def _escaped(text: str) -> str:
    """Plain text as Markdown, in a table too, but for what it holds in backticks."""
    return "".join(_escaped_code(part) if part.startswith("`") else _escaped_text(part) for part in _CODE.split(text))


def _escaped_text(text: str) -> str:
    # Where a backslash would do in one dialect of Markdown and not in another, there is an entity.
    return re.sub(r"([\\*_\[\]{}#])", r"\\\1", html.escape(text, quote=False)).replace("|", "&#124;")


def _escaped_code(code: str) -> str:
    if "|" not in code:
        return code
    return f"<code>{html.escape(code.strip('`'), quote=False).replace('|', '&#124;')}</code>"


# The configuration


def _keys() -> str:
    """The keys of a configuration file: values and defaults of the schema, the meaning in the README's words."""
    schema = cast("msgspec.inspect.StructType", msgspec.inspect.type_info(Config))
    kinds = {field.encode_name: _kind(field.type) for field in schema.fields}
    readme = README.read_text(encoding="utf-8")
    rows = [[f"`{key}`", kinds[key], _default(key), _use(key, readme)] for key in KEYS]
    return _table(["key", "value", "default", "meaning"], rows)


def _use(key: str, readme: str) -> str:
    """What a key is for. Raises ValueError if the README does not say it."""
    row = re.search(rf"^\| `{re.escape(key)}` \| [^|]+ \| (?P<meaning>.+) \|$", readme, re.MULTILINE)
    if row is None:
        raise ValueError(f"{README}: its table of keys has no row for {key}")
    return row["meaning"]


def _default(key: str) -> str:
    value = getattr(Config(), KEYS[key])
    return "not set" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def _kind(kind: msgspec.inspect.Type) -> str:
    """What values a type allows, in words."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(_kind(one) for one in types if not isinstance(one, msgspec.inspect.NoneType))
        case msgspec.inspect.LiteralType(values=values):
            return ", ".join(f'`"{value}"`' for value in values)
        case msgspec.inspect.DictType(value_type=value):
            return f"table of {_kind(value).replace('list', 'lists')}"
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return f"list of {_kind(item)}s"
        case msgspec.inspect.BoolType():
            return "`true` or `false`"
        case msgspec.inspect.IntType():
            return "whole number"
        case msgspec.inspect.StrType():
            return "string"
    raise ValueError(f"{kind}: say here in words what values this type allows")


# What is written where

TABLES: dict[Path, tuple[str, Callable[[], str]]] = {
    README: ("rules", _readme_rules),
    PAGES / "index.md": ("rules", _site_rules),
    DOCS / "command-line.md": ("options", _options),
    DOCS / "configuration.md": ("keys", _keys),
}


def main() -> None:
    """Write every file that is not current, and delete pages of rules that are gone."""
    files = generated()
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    for path in set(PAGES.glob("*.md")) - set(files):
        path.unlink()
        print(f"deleted {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
