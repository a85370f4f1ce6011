"""The tools whose data can be imported, by name."""

from memoryhub.transfer.records import ImportSource
from memoryhub.transfer.sources.basic_memory import BASIC_MEMORY
from memoryhub.transfer.sources.claude_code import CLAUDE_CODE
from memoryhub.transfer.sources.claude_mem import CLAUDE_MEM
from memoryhub.transfer.sources.cline import CLINE, KILO, ROO
from memoryhub.transfer.sources.codex import CODEX
from memoryhub.transfer.sources.copilot_cli import COPILOT_CLI
from memoryhub.transfer.sources.cursor import CURSOR
from memoryhub.transfer.sources.engram import ENGRAM
from memoryhub.transfer.sources.gemini_cli import GEMINI_CLI
from memoryhub.transfer.sources.mcp_memory_service import MCP_MEMORY_SERVICE
from memoryhub.transfer.sources.mem0 import MEM0
from memoryhub.transfer.sources.obsidian import OBSIDIAN
from memoryhub.transfer.sources.opencode import OPENCODE
from memoryhub.transfer.sources.qwen_code import QWEN_CODE
from memoryhub.transfer.sources.rules import RULE_SOURCES
from memoryhub.transfer.sources.server_memory import SERVER_MEMORY

_SOURCES = (
    SERVER_MEMORY,
    CLAUDE_CODE,
    CODEX,
    GEMINI_CLI,
    QWEN_CODE,
    OPENCODE,
    COPILOT_CLI,
    CURSOR,
    CLINE,
    ROO,
    KILO,
    *RULE_SOURCES,
    OBSIDIAN,
    BASIC_MEMORY,
    MEM0,
    CLAUDE_MEM,
    ENGRAM,
    MCP_MEMORY_SERVICE,
)
SOURCES: dict[str, ImportSource] = {source.name: source for source in _SOURCES}
