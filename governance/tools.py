from __future__ import annotations

from functools import partial

from governance.blame import BlameRequest, blame
from governance.present import affirmed_text, blame_lines, stale_line
from governance.staleness.schemas import Affirm, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.service import affirm
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools


def show_stale(command: StaleList) -> Answer:
    return listed(list_stale(command=command), partial(stale_line, diff=command.diff), none="nothing needs rechecking")


def confirm_validity(command: Affirm) -> Answer:
    result = affirm(command=command)
    return Answer(affirmed_text(result), result.model_dump(mode="json"))


def show_blame(command: BlameRequest) -> Answer:
    view = blame(command=command).view
    return Answer("\n".join(blame_lines(view)), view.model_dump(mode="json", exclude_none=True))


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
        confirm_validity,
        group=ToolGroup.WORK,
        writes=True,
    ),
    Tool(
        "memory_blame",
        "Why lines of a file are as they are: commit, decision, session, prompt, and guidelines of that time.",
        BlameRequest,
        show_blame,
        group=ToolGroup.WORK,
    ),
]

register_tools(*TOOLS)
