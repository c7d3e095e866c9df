"""The command line: which verb is meant, and how the program ends.

Exit status 0: nothing to report. 1: findings at the fail level. 2: wrong usage or configuration, unreadable files, an
error in torchlint. 130: interrupted. Imports wait until they are needed, so that `--version` costs nothing.
"""

from __future__ import annotations

import gc
import sys

VERBS = ("check", "rules", "rule", "config", "init", "completion", "server", "verify")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status. Without `argv` it is the process's own, and ends with it."""
    if argv is None:
        try:
            return main(sys.argv[1:])
        finally:
            gc.freeze()  # what is left goes with the process: Python need not look for garbage in it
    if argv in (["--version"], ["-V"]):
        from torchlint import __version__

        print(f"torchlint {__version__}")
        return 0
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:
        # A full disk, for one. Errors about files that are linted are reported with the file, and do not come here.
        _discard_output()
        print(f"error: the report cannot be written: {error.strerror or error}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    from torchlint.config import ConfigError

    for stream in (sys.stdout, sys.stderr):
        # A source line must not end the run because the terminal's encoding has no such character.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except ConfigError as error:
        from torchlint.reports.output import visible

        print(f"error: {visible(str(error))}", file=sys.stderr)
        return 2


def _dispatch(arguments: list[str]) -> int:
    verb = arguments[0] if arguments and arguments[0] in VERBS else "check"
    rest = arguments[1:] if arguments[:1] == [verb] else arguments
    if verb in ("rules", "rule"):
        from torchlint import explain

        return explain.main(verb, rest)
    if verb == "config":
        from torchlint import show_config

        return show_config.main(rest)
    if verb == "verify":
        from torchlint.runtime_verify import verify_command

        status: int = verify_command.main(rest)
        return status
    if verb == "server":
        from torchlint.server import command

        return command.main(rest)
    if verb == "init":
        from torchlint import init

        return init.main(rest)
    if verb == "completion":
        from torchlint import completion

        return completion.main(rest)
    from torchlint import check_command

    return check_command.main(rest)


def _discard_output() -> None:
    """Give Python's last flush somewhere to go: the reader of our output has left."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
