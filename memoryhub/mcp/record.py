"""Record the server's answers for a snapshot, in every protocol revision, over streams in memory."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

from memoryhub.mcp.opening import HANDSHAKE_VERSIONS, LIST_METHODS, MODERN_VERSIONS
from memoryhub.mcp.snapshot import Answers

_ENVELOPE = "io.modelcontextprotocol/"


def record(server: Server[Any]) -> Answers:
    """Return the server's answers to opening messages, without errors. Runs its own event loop."""
    return anyio.run(_record, server)


async def _record(server: Server[Any]) -> Answers:
    answers: Answers = {}
    for version in HANDSHAKE_VERSIONS:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "snapshot", "version": "1"}}
        requests = [("initialize", hello), *((method, {}) for method in ("ping", *LIST_METHODS))]
        answers[version] = await _ask(server, requests)
    for version in MODERN_VERSIONS:
        meta = {"_meta": {f"{_ENVELOPE}protocolVersion": version, f"{_ENVELOPE}clientCapabilities": {}}}
        answers[version] = await _ask(server, [(method, meta) for method in ("server/discover", "ping", *LIST_METHODS)])
    return answers


async def _ask(server: Server[Any], requests: list[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    to_server, server_reads = create_context_streams[SessionMessage | Exception](len(requests))
    server_writes, from_server = create_context_streams[SessionMessage](len(requests))
    answers: dict[str, str] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(server.run, server_reads, server_writes, server.create_initialization_options())
        for method, params in requests:
            request = types.JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params)
            await to_server.send(SessionMessage(request))
            answer = (await from_server.receive()).message
            if isinstance(answer, types.JSONRPCResponse):
                answers[method] = json.dumps(answer.result, ensure_ascii=False, separators=(",", ":"))
        await to_server.aclose()
    await from_server.aclose()
    return answers
