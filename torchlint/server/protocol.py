"""The wire: messages that are broken are answered or passed over, and never end the server."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol

if TYPE_CHECKING:
    from typing import BinaryIO

_log = logging.getLogger(__name__)
_LENGTH = re.compile(rb"content-length\s*:\s*(\d{1,9})\s*$", re.IGNORECASE)
_NOT_INITIALIZED = types.ResponseError(types.ErrorCodes.ServerNotInitialized, "the server is not initialized")


class Reader:
    """Standard input for pygls, which knows one spelling of the header alone.

    What stands before a header on its line is what remains of a message whose header was broken: without it, the
    messages that follow can be read again.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        line = self._stream.readline()
        found = _LENGTH.search(line)
        return b"Content-Length: %d\r\n" % int(found[1]) if found else line

    def read(self, size: int) -> bytes:
        return self._stream.read(size)


class _Void:
    """A message that needs no handling any more."""


class Protocol(LanguageServerProtocol):
    """pygls' protocol, with answers to requests that cannot be understood."""

    _is_initialized = False

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The message that `data` encodes. One that breaks the protocol is answered here, where it is a request."""
        if "jsonrpc" not in data:
            return data
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], None, error.to_response_error())
            _log.warning("passed over a %s message that breaks the protocol", data.get("method"))
            return _Void()

    def handle_message(self, message: Any) -> None:
        """Handle a message, if it is one, and its time has come."""
        method = getattr(message, "method", None)
        if isinstance(message, _Void) or not hasattr(message, "jsonrpc"):
            if not isinstance(message, _Void):
                _log.warning("passed over what is no message")
            return
        if method == types.INITIALIZE and self._is_initialized:
            again = types.ResponseError(types.ErrorCodes.InvalidRequest, "the server is initialized already")
            self._send_response(message.id, None, again)
            return
        self._is_initialized |= method == types.INITIALIZE
        if not self._is_initialized and method not in (None, types.EXIT):
            if hasattr(message, "id"):
                self._send_response(message.id, None, _NOT_INITIALIZED)
            return
        super().handle_message(message)
