"""The results as JSON data and as Markdown, first where others are better than the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from benchmarks.sets.model import EvaluationSet
from benchmarks.speed.figures import Amount
from benchmarks.yardstick.adapters import ServerAdapter
from benchmarks.yardstick.measures import COLUMNS, TOKENS_DEFINITION, TOKENS_HEADING, DoorResult, Share
from benchmarks.yardstick.operations import ServerResult
from benchmarks.yardstick.systems import SEARCH
from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted

HUB = "Memory Hub"
HUB_SERVER = "memory-hub"
_MEGABYTE = 1_000_000
_FAILED = "failed"
_DEFINITIONS = {
    "start": "process start to the first `tools/list`, p50",
    "write": "one call that stores a short text, p50 / p95",
    "search": "one call that searches, p50 / p95",
    "memory": "sum of the peak resident memory of the server's processes after these calls, MB",
    "disk": "size of its home after the writes, MB",
    "secrets": "made-up secrets of known forms that a search answers; that are in a file of its home",
    "deleted": "deleted texts that a search still answers",
    "lost": "acknowledged writes that a search does not find after `kill -9` and a new start",
}


@dataclass(frozen=True, slots=True)
class SetResults:
    key: str
    label: str
    documents: int
    queries: int
    doors: list[DoorResult] = field(default_factory=list)


@dataclass(slots=True)
class YardstickResults:
    half: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    adapters: list[ServerAdapter] = field(default_factory=list)
    sets: list[SetResults] = field(default_factory=list)
    servers: list[ServerResult] = field(default_factory=list)

    def of_set(self, chosen: EvaluationSet) -> SetResults:
        """Return the results of a set, which are empty if it was not measured yet."""
        documents = sum(len(collection.documents) for collection in chosen.collections)
        queries = sum(len(collection.queries) for collection in chosen.collections)
        empty = SetResults(chosen.key, chosen.label, documents, queries)
        for result in self.sets:
            if (result.label, result.documents, result.queries) == (empty.label, documents, queries):
                return result
        self.sets.append(empty)
        return empty

    def as_data(self) -> dict[str, Any]:
        data = asdict(self)
        data["adapters"] = [adapter.model_dump() for adapter in self.adapters]
        data["better"] = list(better_elsewhere(self))
        return data


def read_results(path: Path) -> YardstickResults:
    """Read what ``as_data`` gave.

    Raises:
        Invalid: the file cannot be read, or has no results.
    """
    try:
        return TypeAdapter(YardstickResults).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise Invalid(f"{path} has no results of the yardstick: {f'{error}'.splitlines()[0]}") from error


def better_elsewhere(results: YardstickResults) -> Iterator[str]:
    """Yield a sentence for each figure in which others beat the hub at the same kind of door, best first."""
    for result in results.sets:
        measured = [row for row in result.doors if not row.failure]
        hubs = [row for row in measured if row.system.startswith(HUB)]
        # With embeddings where these are measured, as it is installed
        for hub in [row for row in hubs if row.system == HUB] or hubs:
            others = [row for row in measured if row not in hubs and (row.door == SEARCH) == (hub.door == SEARCH)]
            for heading, sentence in _better_shares(hub, others):
                yield f"{result.label}, {heading}: {sentence}"
    hub_server = next((server for server in results.servers if server.system == HUB_SERVER), None)
    if hub_server:
        yield from _better_costs(hub_server, results.servers)


def _better_shares(hub: DoorResult, others: Sequence[DoorResult]) -> Iterator[tuple[str, str]]:
    for column in COLUMNS:
        if column.key not in hub.shares:
            continue
        ours = hub.shares[column.key].value
        better = [
            (share.value, f"{_named(other, hub)} {_short(share.value)}")
            for other in others
            if (share := other.shares.get(column.key))
            and (share.value - ours) * (1 if column.more_is_better else -1) > 0
        ]
        if better:
            names = ", ".join(name for _, name in sorted(better, reverse=column.more_is_better))
            yield column.heading, f"the hub's {hub.door} {_short(ours)}; {names}"
    if tokens := hub.tokens_per_right:
        less = [(other.tokens_per_right, other) for other in others if other.tokens_per_right]
        fewer = [
            f"{_named(other, hub)} {count:.0f}" for count, other in sorted(less, key=itemgetter(0)) if count < tokens
        ]
        if fewer:
            yield TOKENS_HEADING, f"the hub's {hub.door} {tokens:.0f}; {', '.join(fewer)}"


# A system that answers little is seldom wrong
def _named(other: DoorResult, hub: DoorResult) -> str:
    theirs, ours = other.shares.get("recall_10"), hub.shares.get("recall_10")
    if theirs and ours and theirs.value < ours.value / 2:
        return f"{other.system} (which finds {_short(theirs.value)})"
    return other.system


def _better_costs(hub: ServerResult, servers: Sequence[ServerResult]) -> Iterator[str]:
    for heading in _DEFINITIONS:
        ours = _cost(hub, heading)
        costs = [(cost, server) for server in servers if (cost := _cost(server, heading)) is not None]
        if ours is not None:
            less = [(cost, server) for cost, server in costs if cost < ours]
            names = [
                f"{server.system} {_server_cells(server)[heading]}" for _, server in sorted(less, key=itemgetter(0))
            ]
            if names:
                yield f"{heading}: {hub.system} {_server_cells(hub)[heading]}; {', '.join(names)}"


# Less is better in all of them
def _cost(server: ServerResult, heading: str) -> float | None:
    amounts: dict[str, float | None] = {
        "start": server.start.value if server.start else None,
        "write": server.write.value if server.write else None,
        "search": server.search.value if server.search else None,
        "memory": server.peak_bytes,
        "disk": server.disk_bytes,
        "secrets": server.secrets_in_files,
        "deleted": server.still_given,
        "lost": server.lost,
    }
    return amounts[heading]


def markdown(results: YardstickResults) -> str:
    parts = [_better_section(results)]
    parts += [_set_section(result) for result in results.sets]
    if results.servers:
        parts.append(_servers_section(results.servers))
    parts += [_machine_section(results), f"## Columns\n\n{definitions()}"]
    return "\n\n".join(parts) + "\n"


def _better_section(results: YardstickResults) -> str:
    sentences = [f"- {sentence}" for sentence in better_elsewhere(results)]
    return "\n".join(["## Where others are better", "", *(sentences or ["In none of the columns measured here."])])


def _set_section(result: SetResults) -> str:
    doors = sorted(result.doors, key=lambda row: not row.system.startswith(HUB))
    columns = [column for column in COLUMNS if any(column.key in row.shares for row in doors)]
    headings = ["system", "door", *(column.heading for column in columns), TOKENS_HEADING]
    rows = []
    for row in doors:
        if row.failure:
            rows.append([row.system, _FAILED, *[""] * len(columns), row.failure])
            continue
        tokens = f"{row.tokens_per_right:.0f}" if row.tokens_per_right else ""
        name = f"{row.system} (refused {counted(row.refused, 'document')})" if row.refused else row.system
        rows.append([name, row.door, *(_share_cell(row.shares.get(column.key)) for column in columns), tokens])
    kinds = sorted({kind for row in doors for kind in row.harm_by_kind})
    title = f"## {result.label}: {result.documents:,} documents, {result.queries:,} queries"
    parts = [title, _table(headings, rows)]
    if kinds:
        harm_rows = [
            [row.system, row.door, *(_share_cell(row.harm_by_kind.get(kind)) for kind in kinds)]
            for row in doors
            if row.harm_by_kind
        ]
        parts.append(f"Harm by kind:\n\n{_table(['system', 'door', *kinds], harm_rows)}")
    return "\n\n".join(parts)


def _servers_section(servers: Sequence[ServerResult]) -> str:
    rows = [[server.system, *_server_cells(server).values()] for server in servers]
    failures = [f"- {server.system}: {reason}" for server in servers for reason in server.failures]
    table = _table(["server", *_DEFINITIONS], rows)
    return "\n".join(["## Costs and accidents", "", table, *(["", *failures] if failures else [])])


def _server_cells(server: ServerResult) -> dict[str, str]:
    is_measured = server.secrets_in_answers is not None
    return {
        "start": _milliseconds(server.start, with_p95=False),
        "write": _milliseconds(server.write),
        "search": _milliseconds(server.search),
        "memory": _megabytes(server.peak_bytes),
        "disk": _megabytes(server.disk_bytes),
        "secrets": f"{server.secrets_in_answers}; {server.secrets_in_files} of {server.secrets}" if is_measured else "",
        "deleted": "" if server.still_given is None else f"{server.still_given} of {server.deletions}",
        "lost": "" if server.lost is None else f"{server.lost} of {server.kills}",
    }


def _machine_section(results: YardstickResults) -> str:
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in results.machine.items())
    programs = [
        f"- {adapter.name} ({adapter.licence}, {adapter.source}): `{adapter.install}`. {adapter.settings}"
        for adapter in results.adapters
    ]
    return "\n".join([f"## Measured with\n\nQueries: {results.half}. {facts}.", "", *programs]).rstrip()


def definitions() -> str:
    """Return what each column means, as Markdown."""
    rows = [[column.heading, column.definition] for column in COLUMNS]
    rows.append([TOKENS_HEADING, TOKENS_DEFINITION])
    rows += [[heading, definition] for heading, definition in _DEFINITIONS.items()]
    return _table(["column", "definition"], rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines)


def _share_cell(share: Share | None) -> str:
    if share is None:
        return ""
    low, high = share.interval
    return f"{_short(share.value)} ({_short(low)}–{_short(high)})"


def _milliseconds(amount: Amount | None, *, with_p95: bool = True) -> str:
    if amount is None:
        return ""
    return f"{amount.value:.1f} / {amount.p95:.1f} ms" if with_p95 else f"{amount.value:.0f} ms"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / _MEGABYTE:.1f}"


def _short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)
