from __future__ import annotations

from unittest import mock

from memoryhub.core import validation
from memoryhub.core.errors import Invalid
from memoryhub.rest.framework import _object
from tests.api.client import RestTestCase

MEMORIES = "projects/alpha/memories"
BODY = {"title": "t", "content": "c"}


class _CountedName(str):
    """A name that counts comparisons."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _CountedName.compared += 1
        return str.__eq__(self, other)


class LongBodyTests(RestTestCase):
    def test_a_repeated_name_is_found_in_one_pass(self) -> None:
        body = [(_CountedName(f"k{number}"), 1) for number in range(500)]
        _CountedName.compared = 0
        with self.assertRaisesMessage(Invalid, "the body names 'k499' twice"):
            _object([*body, (_CountedName("k499"), 2)])
        self.assertLess(_CountedName.compared, 1_000)

    def test_only_the_first_faults_of_a_body_are_explained(self) -> None:
        body = {f"k{number}": 1 for number in range(2_000)}
        with mock.patch.object(validation, "_field", wraps=validation._field) as fields:
            detail = self.call("POST", MEMORIES, {**BODY, **body}, expect=422).data["detail"]
        self.assertIn("'k0' is not known", detail)
        self.assertTrue(detail.endswith("'k20', and more"), detail[-40:])
        self.assertLess(len(detail), 1_000)
        self.assertLess(fields.call_count, 500)
