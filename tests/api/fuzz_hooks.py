"""Hooks of schemathesis: the target of requests, and false positives.

``MEMORY_HUB_TEST_FUZZ`` is the path of a JSON file with values of parameters by name.
"""

from __future__ import annotations

import copy
import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import schemathesis
from jsonschema import Draft202012Validator
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.openapi.checks import RejectedPositiveData

KNOWN: dict[str, list[Any]] = json.loads(Path(os.environ["MEMORY_HUB_TEST_FUZZ"]).read_text())

# One in so many boundary values is tried.
BOUNDARIES_SHARE = int(os.environ["MEMORY_HUB_TEST_FUZZ_SHARE"])

# Rules that JSON Schema can't express: on several fields together, or on the store's content. A 422 with any other
# message is an error in the schema.
BEYOND_SCHEMAS = (
    r"^cursor is not one that this list gave",
    r"belongs to no organisation; set one",
    r"^scope session needs a session",
    r"^no session is open here",
    r"^'query' must not be empty$",  # of ``query`` and its short form ``q`` one must be there
    r"leave the type out, the id is enough",
    r"is for resolution merge, not for",
    r"^resolution merge needs ",
    r"^#\d+ cannot be linked to itself",
    r"^pass at least one of ",
    r"^nothing to change: ",
    r"exactly one of text, pattern, rules and whole",
    r"whole needs ids or search",
    r"^pattern is not a valid RE2 expression",
    r"^'source' and 'target' are the same",
    r"give at least one of session_id, actor, source, since and until",
    r"nothing to roll back",
    r"^If-Match and base_version name different versions",
    r"status accepted needs a choice; omit the status to propose",
    r"^kind \w+ has no attribute ",  # the kind is another field
    r"^attributes of kind ",
    r"^'type' must be one of .* for kind ",
    r"is missing in the data from \S+; it names the session",  # the body is the client's own
    r"^the event names no folder",
    r"links cannot cross stores",
    r"^'\w+' must be an id such as 412, or \w+, not ",  # or the name of the store, with its type beside it
    r"is not a valid RE2 pattern",
    r"^setting ",  # of patterns and of rules whose parts must fit together
    r"^this server is bound to ",
    r"^valid_until is in the past",
    r"^'also': #\d+ is not downstream of the selection",
    r"^jsonl exports the whole store",
    r"^line \d+ is before line \d+",
    r"^git can't blame ",  # of the file's lines
    r"is no path of a file from the top|is not in the project's folder",
    r"is no check; write ",  # of a command that the shell splits, or of a file and an RE2 pattern
    r"^the command `.*` (has line breaks or|cannot be split) |^the command is empty; ",
    r"is no path inside the working tree; |^the check of .* has no pattern; ",
)
_SPELLED = {
    "boolean": re.compile(r"true|false|yes|no|on|off|y|n|t|f|0|1|0\.0|1\.0", re.IGNORECASE),
    "integer": re.compile(r"\s*#?[+-]?\d+(\.0*)?\s*|True|False"),
    "number": re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*"),
}


# The schema as the hub returns it
_described: dict[str, Any] = {}


@schemathesis.hook
def before_load_schema(_: HookContext, raw_schema: dict[str, Any]) -> None:
    """Use existing ids as parameters: random ones would nearly all be 404."""
    _described.update(copy.deepcopy(raw_schema))
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in KNOWN and parameter["in"] == "path":
                    parameter["schema"] = {**parameter["schema"], "enum": KNOWN[parameter["name"]]}
    schemas = raw_schema["components"]["schemas"]
    for schema, field in (("ProjectCreate", "project"), ("OrgCreate", "org")):  # each new one is a store
        schemas[schema]["properties"]["id"] = {"enum": KNOWN[f"{field}_id"]}


@schemathesis.hook
def filter_case(_: HookContext, case: Case) -> bool:
    """Try only some boundary values, and no setting that would end the run, such as a strict turn policy."""
    settings = case.body.get("settings") if isinstance(case.body, dict) else None
    if isinstance(settings, dict) and settings.keys() & {"turn_policy", "secret_rules", "capture_decisions"}:
        return False
    is_boundary = case.meta is not None and isinstance(case.meta.phase.data, CoveragePhaseData)
    return not is_boundary or _number(case) % BOUNDARIES_SHARE == 0


def _number(case: Case) -> int:
    parts = (case.method, case.path, case.path_parameters, case.query, case.headers, case.body)
    return zlib.crc32(repr(parts).encode("utf-8", "replace"))


@schemathesis.hook
def filter_failure(_: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    """Keep a failure unless a known rule explains it, or the request is valid after all."""
    if isinstance(failure, RejectedPositiveData) and response.status_code == 422:
        detail = response.json()["detail"]
        return not any(re.search(rule, detail) for rule in BEYOND_SCHEMAS) and not _errors_of_body(case)
    if isinstance(failure, AcceptedNegativeData):
        return not (_is_a_path_of_ours(case) or _is_read_as_meant(case))
    return not _is_only_late(case, response)


def _is_only_late(case: Case, response: Response) -> bool:
    # The brief form runs without a worker, and a slow machine takes more than the minutes after which jobs are overdue.
    if (case.path, response.status_code) != ("/api/v1/health", 503):
        return False
    parts = response.json().get("parts", {})
    return [name for name, finding in parts.items() if finding != "ok"] == ["worker"]


def _operation(case: Case) -> dict[str, Any]:
    operation: dict[str, Any] = _described["paths"][case.operation.path][case.operation.method.lower()]
    return operation


def _validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": _described["components"]})


def _errors_of_body(case: Case) -> list[Any]:
    bodies = _operation(case).get("requestBody", {}).get("content", {})
    if case.media_type not in bodies:
        return []
    return list(_validator(bodies[case.media_type]["schema"]).iter_errors(case.body))


def _is_a_path_of_ours(case: Case) -> bool:
    # Only the path was meant to be wrong, but its id exists, though not in KNOWN.
    meta = case.meta
    if meta is None or meta.phase.data.parameter_location is not ParameterLocation.PATH:
        return False
    schemas = {
        parameter["name"]: parameter["schema"]
        for parameter in _operation(case)["parameters"]
        if parameter["in"] == "path"
    }
    given = case.path_parameters or {}
    return all(
        _validator(schema).is_valid(int(given[name]) if str(given[name]).isdecimal() else given[name])
        or (schema.get("type") == "string" and _validator(schema).is_valid(str(given[name])))
        for name, schema in schemas.items()
    )


def _errors_of_query(case: Case) -> list[Any]:
    given = case.query or {}
    schemas = {
        parameter["name"]: parameter["schema"]
        for parameter in _operation(case)["parameters"]
        if parameter["in"] == "query"
    }
    return [
        error for name in given.keys() & schemas.keys() for error in _validator(schemas[name]).iter_errors(given[name])
    ]


def _is_read_as_meant(case: Case) -> bool:
    # The hub accepts scalars that spell a value of the type, because models write numbers as strings, and strips text.
    errors = _errors_of_body(case) + _errors_of_query(case)
    return bool(errors) and all(map(_spells, errors))


def _spells(error: Any) -> bool:
    if error.validator == "anyOf":
        return any(map(_spells, error.context))
    if isinstance(error.instance, str) and error.validator in ("pattern", "maxLength"):
        stripped = error.instance.strip()
        return stripped != error.instance and _validator(error.schema).is_valid(stripped)
    wanted = _SPELLED.get(error.validator_value) if error.validator == "type" else None
    given = error.instance
    return bool(wanted and isinstance(given, str | int | float) and wanted.fullmatch(str(given)))
