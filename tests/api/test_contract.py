from __future__ import annotations

from typing import Any, Literal
from unittest import mock

from django.test import SimpleTestCase
from pydantic import BaseModel

from memories.schemas import MemoryUpdate
from memoryhub.core.rest import without
from memoryhub.core.tools import all_tools, find_tool
from memoryhub.mcp.listing import load_tools
from memoryhub.rest import framework, reference
from memoryhub.rest.api import api
from tests.api.client import RestTestCase

PROJECT = "/api/v1/projects/{project_id}"
_OF_RELATION = {"id", "source", "relation", "target", "source_type", "target_type"}
# Routes, their tools, and the tools' arguments that are in the path or a header
SHARED = {
    "memory_write": ("post", "/memories", set()),
    "memory_update": ("patch", "/memories/{memory_id}", {"id", "must_be_current"}),
    "memory_delete": ("delete", "/memories/{memory_id}", {"id"}),
    "memory_restore": ("post", "/memories/{memory_id}/restore", {"id"}),
    "memory_list": ("get", "/memories", set()),
    "memory_search": ("get", "/search", set()),
    "memory_timeline": ("get", "/timeline", set()),
    "memory_query": ("post", "/query", set()),
    "memory_conflicts": ("get", "/conflicts", set()),
    "memory_conflict_resolve": ("post", "/conflicts/{conflict_id}/resolve", {"id"}),
    "tag_create": ("post", "/tags", set()),
    "tag_list": ("get", "/tags", set()),
    "tag_attach": ("post", "/memories/{memory_id}/tags", {"id", "entry_type"}),
    "tag_detach": ("delete", "/memories/{memory_id}/tags", {"id", "entry_type"}),
    "relation_create": ("post", "/relations", set()),
    "relation_list": ("get", "/relations", set()),
    "relation_delete": ("delete", "/relations/{relation_id}", _OF_RELATION),
    "decision_record": ("post", "/decisions", set()),
    "decision_supersede": ("post", "/decisions/{decision_id}/supersede", {"id"}),
    "decision_unlink": ("delete", "/decisions/{decision_id}/edges/{relation}/{to}", {"id", "relation", "to"}),
    "commit_record": ("post", "/commits/read", set()),
    "session_start": ("post", "/sessions", set()),
    "session_end": ("post", "/sessions/{session_id}/end", {"session_id"}),
    "session_list": ("get", "/sessions", set()),
}


class OneSchemaTests(SimpleTestCase):
    def setUp(self) -> None:
        load_tools()
        self.schema = api.get_openapi_schema()

    def test_every_route_takes_what_its_tool_takes(self) -> None:
        for name, (method, path, in_path) in SHARED.items():
            with self.subTest(tool=name):
                tool = find_tool(name)
                assert tool
                taken = self._taken(self.schema["paths"][PROJECT + path][method])
                self.assertEqual(taken - {"q"}, set(tool.input.model_fields) - in_path)

    def _taken(self, operation: dict[str, Any]) -> set[str]:
        parameters = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        reference = body.get("$ref") or next((part["$ref"] for part in body.get("allOf", [])), "")
        name = reference.rpartition("/")[2]
        return parameters | set(self.schema["components"]["schemas"].get(name, {}).get("properties", {}))

    def test_a_body_without_the_paths_field_keeps_every_rule_of_the_others(self) -> None:
        body = without(MemoryUpdate, "id")
        expected = {name: repr(field) for name, field in MemoryUpdate.model_fields.items() if name != "id"}
        self.assertEqual({name: repr(field) for name, field in body.model_fields.items()}, expected)
        self.assertTrue(issubclass(body, BaseModel))
        self.assertEqual(body.model_config["extra"], "forbid")


class DescriptionTests(SimpleTestCase):
    def setUp(self) -> None:
        self.schema = api.get_openapi_schema()
        self.operations = {
            f"{method} {path}": operation
            for path, methods in self.schema["paths"].items()
            for method, operation in methods.items()
        }

    def test_every_operation_is_described_and_documents_its_errors_as_problems(self) -> None:
        for name, operation in self.operations.items():
            with self.subTest(operation=name):
                self.assertTrue(operation["summary"] and operation["description"].endswith("."))
                errors = {code: answer for code, answer in operation["responses"].items() if code >= "400"}
                self.assertLessEqual(_errors_of(name, operation), set(errors))
                for error in errors.values():
                    self.assertEqual(list(error["content"]), ["application/problem+json"])
                for parameter in operation["parameters"]:
                    self.assertTrue(parameter["in"] != "path" or parameter.get("description"), parameter["name"])

    def test_every_schema_has_a_name_of_its_own(self) -> None:
        described = self.schema["components"]["schemas"]
        operations = [
            operation
            for _, router in api._routers
            for view in router.path_operations.values()
            for operation in view.operations
        ]
        models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = []
        for operation in operations:
            answers = [model for model in operation.response_models.values() if hasattr(model, "model_json_schema")]
            models += [(model, "validation") for model in operation.models]
            models += [(model, "serialization") for model in answers]
        for model, mode in models:
            definitions = model.model_json_schema(mode=mode, ref_template="#/components/schemas/{model}").get(
                "$defs", {}
            )
            for name, schema in definitions.items():
                with self.subTest(model=model.__name__, schema=name):
                    self.assertEqual(_gist(described[name]), _gist(schema))

    def test_every_integer_that_is_taken_has_bounds_that_a_column_holds(self) -> None:
        load_tools()
        asked: dict[str, Any] = {tool.name: tool.input.model_json_schema() for tool in all_tools()}
        for name, operation in self.operations.items():
            bodies = operation.get("requestBody", {}).get("content", {}).values()
            asked[name] = {
                "anyOf": [part["schema"] for part in [*operation["parameters"], *bodies]],
                "$defs": self.schema["components"]["schemas"],
            }
        for name, schema in asked.items():
            for integer in _integers(schema, schema.get("$defs", {}), frozenset()):
                with self.subTest(of=name, integer=integer):
                    self.assertGreaterEqual(integer["minimum"], 0)
                    self.assertLess(integer["maximum"], 2**63)

    def test_every_reference_leads_somewhere(self) -> None:
        schemas = self.schema["components"]["schemas"]
        for target in _references(self.schema):
            self.assertIn(target.rpartition("/")[2], schemas)


def _errors_of(name: str, operation: dict[str, Any]) -> set[str]:
    path = name.partition(" ")[2]
    if path.endswith(("/health", "/problems/{code}")):
        return {"503"} if path.endswith("health") else {"404"}
    parameters = {(parameter["in"], parameter["name"]) for parameter in operation["parameters"]}
    return {
        "401",
        "403",
        *(() if path.endswith("/metrics") else ("422", "423", "503")),
        *(("404",) if "{" in path else ()),
        *(("413", "415") if "requestBody" in operation else ()),
        *(("409",) if ("header", "Idempotency-Key") in parameters else ()),
        *(("412",) if ("header", "X-Ack-Token") in parameters else ()),
    }


def _gist(schema: dict[str, Any]) -> tuple[set[str], list[Any]]:
    return set(schema.get("properties", ())), schema.get("enum", [])


def _integers(node: Any, schemas: dict[str, Any], inside: frozenset[str]) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for part in node for found in _integers(part, schemas, inside)]
    if not isinstance(node, dict):
        return []
    name = node.get("$ref", "").rpartition("/")[2] if isinstance(node.get("$ref"), str) else ""
    if name and name not in inside:
        return _integers(schemas[name], schemas, inside | {name})
    own = [node] if node.get("type") == "integer" else []
    return own + [found for key, part in node.items() if key != "$defs" for found in _integers(part, schemas, inside)]


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [found for part in node for found in _references(part)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for part in node.values() for found in _references(part)]


class ReferenceTests(RestTestCase):
    def test_the_schema_and_its_page_are_built_once_and_name_the_address_of_the_request(self) -> None:
        completed = self.enterContext(mock.patch.object(framework, "complete", wraps=framework.complete))
        grouped = self.enterContext(mock.patch.object(reference, "groups", wraps=reference.groups))
        for host in ("localhost", "localhost:1234", "127.0.0.1:99"):
            self.assertIn("/api/v1/projects", self.client.get("/api/v1/openapi.json").json()["paths"])
            page = self.client.get("/api/v1/docs", headers={"host": host})
            self.assertContains(page, f"&#x27;http://{host}/api/v1/projects&#x27;")
        self.assertLessEqual((completed.call_count, grouped.call_count), (1, 1))
