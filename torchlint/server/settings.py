"""What a client may set for the server; the rules are configured in the project's own files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from torchlint.config import did_you_mean


class ServerSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The client's settings.

    diagnostic_mode: whose findings are shown. debounce: the pause after a keystroke, in milliseconds, before the text
    is judged. configuration: a configuration file to use instead of those that are found.
    """

    diagnostic_mode: Literal["openFiles", "workspace"] = "openFiles"
    debounce: int = 100
    configuration: str | None = None


def read_settings(options: Any) -> tuple[ServerSettings, str]:
    """The settings in what a client sent, and what is wrong with it, "" where nothing is.

    Clients wrap settings differently: in `settings`, in `torchlint`, or not at all. What cannot be used counts as
    unset.
    """
    for key in ("settings", "torchlint"):
        if isinstance(options, dict) and isinstance(options.get(key), dict):
            options = options[key]
    if not isinstance(options, dict):
        return ServerSettings(), ""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(ServerSettings)}
    used, problems = {}, []
    for key, value in options.items():
        if key not in known:
            problems.append(f"unknown setting {key!r}{did_you_mean(str(key), known)}")
            continue
        try:
            msgspec.convert({key: value}, ServerSettings)
            used[key] = value
        except msgspec.ValidationError as error:
            problems.append(f"setting {key!r}: {error}")
    return msgspec.convert(used, ServerSettings), "; ".join(problems)
