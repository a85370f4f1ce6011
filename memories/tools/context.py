"""The MCP tool and the resource of context packs."""

from __future__ import annotations

from typing import Any

from memories.pack import pack_context
from memories.schemas.pack import ContextPackRequest
from memories.tools.parsing import parsed
from memoryhub.core.tools import Answer, Resource, Tool, register_resources, register_tools


def pack(command: ContextPackRequest) -> Answer:
    """Answer with a context pack."""
    sent = pack_context(command=command)
    return Answer(sent.text, sent.data())


def read_pack(parameters: dict[str, str]) -> dict[str, Any]:
    """Read ``context://pack{?max_tokens}``."""
    return pack_context(command=parsed(ContextPackRequest, parameters)).data()


register_tools(
    Tool(
        "memory_context",
        "What to know before going on: guidelines, decisions, facts, recent turns, conflicts, the last session.",
        ContextPackRequest,
        pack,
        records=True,
        aliases=("context_pack",),
    )
)
register_resources(
    Resource("context://pack{?max_tokens}", "context pack", "What to know before going on", read_pack, records=True)
)
