"""Follow the file in which the plugin Alfred Dev keeps its work: its writes begin, advance and end an iteration."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from memoryhub.core import log
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.text import flat
from sessions_app.events.client import FILE_EDITED
from sessions_app.hook_parser import HookEvent
from sessions_app.models import Iteration, IterationStatus
from sessions_app.schemas import IterationComplete, IterationStart
from sessions_app.services.iterations import active_iteration, complete_iteration, record_phase, start_iteration

logger = logging.getLogger(__name__)

STATE_FILE = "alfred-dev-state.json"
_MAX_BYTES = 256 * 1024
_MAX_NAME, _MAX_DESCRIPTION, _MAX_ARTIFACT = 64, 5_000, 500
_MAX_PHASES, _MAX_ARTIFACTS = 50, 100
# The plugin's value of the current phase when its work is done
_DONE = "completado"


@dataclass(frozen=True, slots=True)
class State:
    """The plugin's work, as far as an iteration shows it."""

    command: str
    description: str
    # Completed phases with their artifacts
    phases: dict[str, list[str]]
    # The current phase; "" if the work is done
    phase: str


def follow_state_file(event: HookEvent) -> None:
    """Begin, advance or end the iteration that a captured write of the state file describes.

    Other events return at once. A file that is not understood changes nothing and is named in the log.
    """
    path = event.payload.get("path", "") if event.type == FILE_EDITED.name else ""
    if PurePosixPath(path).name != STATE_FILE:
        return
    try:
        state = parse_state(_content(event, path))
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("ignoring a write of %s: %s", STATE_FILE, error)
        return
    with log.transaction():
        _apply(state)


def parse_state(text: str) -> State:
    """Return the state that a file describes.

    Raises:
        ValueError: it is no JSON object with ``comando`` and ``fase_actual``.
    """
    data = json.loads(text)
    command, phase = (
        (_name(data.get(key)) for key in ("comando", "fase_actual")) if isinstance(data, dict) else ("", "")
    )
    if not command or not phase:
        raise ValueError("it has no 'comando' and 'fase_actual'")
    description = data.get("descripcion") or data.get("descripción")
    description = description[:_MAX_DESCRIPTION] if isinstance(description, str) else ""
    description.encode()  # half of a surrogate pair, which no event can hold, is a ValueError
    return State(
        command=command,
        description=description,
        phases=dict(_phases(data.get("fases_completadas"))),
        phase="" if phase == _DONE else phase,
    )


# The written text if the event has it; after an edit of a part the file itself, unless it is on another machine
def _content(event: HookEvent, path: str) -> str:
    is_here = event.directory.startswith("/")
    folder = event.directory if is_here else event.directory.partition(":")[2]
    place = PurePosixPath(event.working_directory or folder, path)
    if ".." in place.parts or not place.is_relative_to(folder):
        raise ValueError(f"{flat(path)[:200]} is not in the session's folder")
    if event.written:
        return event.written
    if not is_here:
        raise ValueError("only a part of it was written, on another machine")
    return read_foreign(Path(place), limit=_MAX_BYTES, follows_links=False).decode()


def _phases(value: Any) -> Iterator[tuple[str, list[str]]]:
    for phase in value[:_MAX_PHASES] if isinstance(value, list) else []:
        fields: Mapping[str, Any] = phase if isinstance(phase, dict) else {"nombre": phase}
        artifacts = fields.get("artefactos")
        names = artifacts[:_MAX_ARTIFACTS] if isinstance(artifacts, list) else []
        if name := _name(fields.get("nombre")):
            yield name, [flat(item)[:_MAX_ARTIFACT] for item in names if isinstance(item, str) and item.strip()]


def _name(value: Any) -> str:
    return flat(value).strip()[:_MAX_NAME] if isinstance(value, str) else ""


def _apply(state: State) -> None:
    iteration = active_iteration()
    if iteration and not _is_of(iteration, state):
        outcome = f"{STATE_FILE} describes other work: {state.command}"
        complete_iteration(command=IterationComplete(id=iteration.id, outcome=outcome, abandon=True))
        iteration = None
    if iteration is None:
        if not state.phase and _is_recorded(state):
            return
        iteration = start_iteration(command=IterationStart(command=state.command, description=state.description))
    _advance(iteration, state)
    if not state.phase:
        complete_iteration(command=IterationComplete(id=iteration.id))


def _advance(iteration: Iteration, state: State) -> None:
    names = [name for name in state.phases if name not in iteration.phases_completed]
    for name, following in zip(names, [*names, state.phase][1:], strict=True):
        record_phase(iteration, completed=name, phase=following, artifacts=state.phases[name])
    if not names and state.phase and state.phase != iteration.phase:
        record_phase(iteration, completed="", phase=state.phase, artifacts=[])


# Work that has lost a phase has begun again
def _is_of(iteration: Iteration, state: State) -> bool:
    return iteration.command == state.command and set(iteration.phases_completed) <= set(state.phases)


def _is_recorded(state: State) -> bool:
    last = Iteration.objects.order_by("-id").first()
    return (
        last is not None
        and last.status == IterationStatus.COMPLETED
        and (last.command, last.description) == (state.command, state.description)
        and list(last.phases_completed) == list(state.phases)
    )
