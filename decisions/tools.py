"""MCP tools and resources, registered on import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decisions import selectors, services
from decisions.present import decision_text, result_text
from decisions.schemas import DecisionGet, DecisionRecord, DecisionResult, DecisionSupersede, DecisionUnlink
from memoryhub.core.text import flat
from memoryhub.core.tools import Answer, Resource, Tool, ToolGroup, fitted, register_resources, register_tools
from memoryhub.core.validation import command_from


def _answer(result: DecisionResult) -> Answer:
    return Answer(result_text(result), result.model_dump(mode="json"))


def record(command: DecisionRecord) -> Answer:
    return _answer(services.record_decision(command=command))


def supersede(command: DecisionSupersede) -> Answer:
    return _answer(services.supersede_decision(command=command))


def unlink(command: DecisionUnlink) -> Answer:
    result = services.unlink_decisions(command=command)
    text = f"#{result.id} no longer {command.relation} #{command.to}"
    return Answer(flat(text), result.model_dump(mode="json"))


def get(command: DecisionGet) -> Answer:
    return fitted(selectors.get_decisions(command=command), command.max_tokens, decision_text)


def read_decision(parameters: dict[str, str]) -> dict[str, Any]:
    command = command_from(DecisionGet, {"ids": [parameters["id"]], "lineage": True})
    return selectors.get_decisions(command=command)[0]


def read_view(_: dict[str, str]) -> str:
    # The page contains no data; it calls decision_get.
    return Path(__file__).with_name("lineage.html").read_text("utf-8")


LINEAGE_VIEW = "ui://memory-hub/lineage"
TOOLS = [
    Tool(
        "decision_record",
        "Record a decision. To change one, supersede it.",
        DecisionRecord,
        record,
        writes=True,
        full_name="memory_log_decision",
    ),
    Tool(
        "decision_supersede",
        "Record the decision that replaces an earlier one; omitted fields are copied from it.",
        DecisionSupersede,
        supersede,
        group=ToolGroup.WORK,
        writes=True,
    ),
    Tool(
        "decision_unlink",
        "Remove a wrong edge between two decisions, such as one that an import read from a file.",
        DecisionUnlink,
        unlink,
        group=ToolGroup.TAGS,
        writes=True,
    ),
    Tool(
        "decision_get",
        "Get decisions with alternatives, commits and files: by id, topic, or the file they explain.",
        DecisionGet,
        get,
        group=ToolGroup.WORK,
        view=LINEAGE_VIEW,
    ),
]

RESOURCES = [
    Resource(
        "decisions://get/{id}",
        "decision",
        "One decision with its evidence and lineage",
        read_decision,
        suggest={"id": selectors.suggest_decisions},
    ),
    Resource(
        LINEAGE_VIEW, "lineage", "Diagram of a decision's lineage", read_view, mime_type="text/html;profile=mcp-app"
    ),
]

register_tools(*TOOLS)
register_resources(*RESOURCES)
