"""What passes from the front to the server when it takes over the wire."""

from __future__ import annotations

from dataclasses import dataclass, field

from memoryhub.mcp.envelope import Message
from memoryhub.mcp.wire import LineBuffer, Wire


@dataclass(slots=True)
class Handover:
    """The wire, and all that was read from it and not answered."""

    wire: Wire
    buffer: LineBuffer
    backlog: list[Message] = field(default_factory=list)
    """Messages for the server, in the order in which they came."""
    ended: bool = False
    """Whether the client has closed its side."""
