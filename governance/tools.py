"""The MCP tools of governance: importing this registers them."""

from __future__ import annotations

from functools import partial

from governance.present import affirmed_text, stale_line
from governance.staleness.schemas import Affirm, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.services import affirm
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools


def show_stale(command: StaleList) -> Answer:
    """Answer with a page of what should be looked at again."""
    return listed(
        list_stale(command=command), partial(stale_line, diff=command.diff), none="nothing waits to be affirmed"
    )


def say_that_it_holds(command: Affirm) -> Answer:
    result = affirm(command=command)
    return Answer(affirmed_text(result), result.model_dump(mode="json"))


TOOLS = [
    Tool(
        "memory_stale",
        "Stale decisions and memories: a commit changed files they govern, or they expired.",
        StaleList,
        show_stale,
        group=ToolGroup.WORK,
    ),
    Tool(
        "memory_affirm",
        "Confirm that a stale decision or memory is still valid. Otherwise supersede, update or delete it.",
        Affirm,
        say_that_it_holds,
        group=ToolGroup.WORK,
        writes=True,
    ),
]

register_tools(*TOOLS)
