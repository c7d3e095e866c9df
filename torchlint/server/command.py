"""`torchlint server`: the language server on standard input and output."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str]) -> int:
    """Serve until the client leaves, and return the exit status: 2 where the extra `lsp` is not installed."""
    parser = argparse.ArgumentParser(
        prog="torchlint server",
        description="Run the language server on standard input and output. Editors start it; docs/editors.md says how.",
        allow_abbrev=False,
    )
    parser.add_argument("--stdio", action="store_true", help="accepted because many clients pass it; it is the default")
    parser.parse_args(arguments)
    try:
        import lsprotocol
        import pygls
    except ImportError:
        print("error: the language server needs pygls: pip install 'torchlint[lsp]'", file=sys.stderr)
        return 2
    del lsprotocol, pygls
    from torchlint.server.app import serve

    return serve()
