"""`torchlint completion bash`: a script with which a shell completes torchlint's command line.

The script is written from the argument parsers by shtab, and knows the rules there are now; it starts no torchlint.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torchlint.arguments import check_parser
from torchlint.cli import VERBS
from torchlint.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHELLS = ("bash", "zsh", "fish")

_FILES = ("paths", "path", "output_file", "config", "stdin_filename")
_FOLDERS = ("cache_dir",)
_CODES = ("select", "ignore", "extend_select")

_EPILOG = """\
Put its output where your shell looks for completions:

  bash   torchlint completion bash > ~/.local/share/bash-completion/completions/torchlint
  zsh    torchlint completion zsh > ~/.zfunc/_torchlint      (with ~/.zfunc in $fpath, before compinit)
  fish   torchlint completion fish > ~/.config/fish/completions/torchlint.fish
"""


def main(arguments: list[str]) -> int:
    """Print the script and return the exit status."""
    shell = completion_parser().parse_args(arguments).shell
    print(script(shell), end="")
    return 0


def completion_parser() -> argparse.ArgumentParser:
    """The options of `torchlint completion`."""
    parser = argparse.ArgumentParser(
        prog="torchlint completion",
        description="Print a script that completes torchlint's command line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    return parser


def script(shell: str) -> str:
    """The completion script for a shell. Raises ConfigError where the package shtab is missing."""
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("completion scripts need the package shtab: pip install 'torchlint[completion]'") from error
    from torchlint.selection import default_registry

    registry = default_registry()
    codes = [*_prefixes(registry), *registry, "ALL"]
    names = [rule.name for rule in registry.values()]
    parser = _whole_parser()
    first = next(action for action in parser._actions if action.dest == "paths")
    if shell == "zsh":
        parser._remove_action(first)
    for action in _actions(parser):
        if action.dest in _CODES:
            action.complete = _code_list(codes + names)  # type: ignore[attr-defined]
        elif action.dest == "rule":
            action.choices = [*registry, *names]
        elif action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar is not None and ":" in action.metavar:
            action.metavar = "PATTERN"  # zsh takes the colon for the end of a field
    if shell == "bash":
        first.complete = {"bash": "_torchlint_file_or_verb", "preamble": {"bash": _BASH_FIRST}}  # type: ignore[attr-defined]
    text = shtab.complete(parser, shell).rstrip("\n") + "\n"
    return _with_paths(text) if shell == "zsh" else text


def _with_paths(text: str) -> str:
    """shtab's script for zsh, in which a word that is no verb is a path, and what follows belongs to a check."""
    for marker, added in _ZSH_PATHS.items():
        if text.count(marker) != 1:
            raise ConfigError("this version of shtab writes another script for zsh: install shtab 1.13")
        text = text.replace(marker, added)
    return text


def _whole_parser() -> argparse.ArgumentParser:
    """One parser for all verbs, as the dispatch of the command line behaves: a check needs no verb."""
    from torchlint.explain import rule_parser, rules_parser
    from torchlint.init import init_parser
    from torchlint.show_config import config_parser

    parser = check_parser()
    parser.usage = None
    verbs = parser.add_subparsers(dest="verb", prog="torchlint")
    described = {
        "check": check_parser(),
        "rules": rules_parser(),
        "rule": rule_parser(),
        "config": config_parser(),
        "init": init_parser(),
        "completion": completion_parser(),
    }
    for name, verb in described.items():
        summary = "find and repair problems (the default)" if name == "check" else verb.description
        verbs.add_parser(name, parents=[verb], add_help=False, description=summary, help=summary, allow_abbrev=False)
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its verbs."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _actions(verb)


def _prefixes(codes: Iterable[str]) -> list[str]:
    """The prefixes that mean a family of rules."""
    return ["TL", *sorted({code[:3] for code in codes})]


def _code_list(words: list[str]) -> dict[str, Any]:
    """How each shell completes a list of codes that are joined by commas."""
    listed = " ".join(words)
    return {
        "bash": "_torchlint_codes",
        "zsh": f"_values -s , code {listed}",
        "fish": "(__torchlint_codes)",
        "preamble": {"bash": _BASH_CODES.replace("@WORDS@", listed), "fish": _FISH_CODES.replace("@WORDS@", listed)},
    }


_ZSH_PATHS = {
    "  _describe 'torchlint commands' _commands\n": "  _describe 'torchlint commands' _commands\n  _files\n",
    "      case $line[1] in\n        check)": "      case $line[1] in\n        check|*[./]*)",
}

_BASH_CODES = """\
# $1=COMP_WORDS[1]
_torchlint_codes() {
  local before=""
  [[ "$1" == *,* ]] && before="${1%,*},"
  compgen -P "$before" -W "@WORDS@" -- "${1##*,}"
}
"""

# The word "file" in the name makes shtab's script mark folders and quote names.
_BASH_FIRST = f"""\
# $1=COMP_WORDS[1]
_torchlint_file_or_verb() {{
  _shtab_compgen_files "$1"
  compgen -W "{" ".join(VERBS)}" -- "$1"
}}
"""

_FISH_CODES = """\
function __torchlint_codes
  set -l before (string match -r '^(?:.*[=,])?' -- (commandline -ct) | string replace -r '^.*=' '')
  for code in @WORDS@
    printf '%s%s\\n' "$before" $code
  end
end
"""
