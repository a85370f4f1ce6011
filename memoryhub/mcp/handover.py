"""What passes from the front to the server when it takes over the wire."""

from __future__ import annotations

from memoryhub.mcp.wire import LineBuffer, Wire

TYPE_CHECKING = False  # what checkers take for typing's, without importing it
if TYPE_CHECKING:
    from memoryhub.mcp.envelope import Message


class Handover:
    """The wire, and all that was read from it and not answered."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.buffer = LineBuffer()
        self.backlog: list[Message] = []
        """Messages for the server, in the order in which they came."""
        self.ended = False
        """Whether the client has closed its side."""
