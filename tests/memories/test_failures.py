"""Failures: what was tried and did not work, found by the text of its error."""

from __future__ import annotations

from django.test import tag

from tests.memories.base import MemoriesTestCase

UNREACHABLE = "kombu.exceptions.OperationalError: broker is unreachable"
ELSEWHERE = """Traceback (most recent call last):
  File "/builds/ci/7781/venv/lib64/python3.12/site-packages/django/db/backends/utils.py", line 105, in _execute
    return self.cursor.execute(sql, params)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/builds/ci/7781/venv/lib64/python3.12/site-packages/django/db/backends/sqlite3/base.py", line 359, in execute
    return super().execute(query, params)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/builds/ci/7781/jobs/consumer.py", line 204, in next_job
    with transaction.atomic(using="queue"):
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/builds/ci/7781/venv/lib64/python3.12/site-packages/django/db/transaction.py", line 198, in __enter__
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
kombu.exceptions.OperationalError: broker is unreachable
"""
CRASH = "==41==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010 at pc 0x55d1b4c2a1f3 in ring_pop"
CRASH_ELSEWHERE = """==9932==ERROR: AddressSanitizer: heap-use-after-free on address 0x7b1c00003ab0 at pc 0x5641f0aa1b20
READ of size 4 at 0x7b1c00003ab0 thread T0
    #0 0x5641f0aa1b1f in ring_pop /home/bo/work/ring.c:91:20
    #1 0x5641f0aa0c44 in run /home/bo/work/run.c:140:3
    #2 0x7f1e2b029d8f in __libc_start_call_main ../sysdeps/nptl/libc_start_call_main.h:58:16
"""


@tag("backend")
class FailureTests(MemoriesTestCase):
    def failure(self, title: str, error: str, **attributes: str) -> int:
        return self.write(title, kind="failure", attributes={"error": error, **attributes})

    def setUp(self) -> None:
        super().setUp()
        self.unreachable = self.failure("Rabbit for the queue", UNREACHABLE, cause="two vhosts", instead="Redis")
        self.crash = self.failure("Free the ring on pop", CRASH, instead="Count the references")
        # They share with the errors what says nothing: paths, frames, the words of any traceback
        self.write_all(
            {
                f"Traceback in {name}": f'Traceback (most recent calls): File "/builds/ci/7781/venv/lib64/python3.12/'
                f'site-packages/django/db/{name}.py", line {105 + number}, in _execute self.execute(sql, params) '
                f"{name}Error: cannot {name} at 0x5641f0aa1b20 thread T0 READ of size 4 /home/bo/work/{name}.c:140:3"
                for number, name in enumerate(["migrate", "connect", "serialise", "render", "compile", "upload"])
            }
        )

    def test_an_error_is_found_by_its_text_with_other_paths_lines_and_addresses(self) -> None:
        self.assertEqual(self.hits(ELSEWHERE)[0], self.unreachable)
        self.assertEqual(self.hits(CRASH_ELSEWHERE)[0], self.crash)
        self.assertEqual(self.hits(f"npm test fails:\n\n{ELSEWHERE}\nWhy?")[0], self.unreachable)

    def test_it_is_found_by_its_cause_and_by_what_was_done_instead(self) -> None:
        self.assertEqual(self.hits("two vhosts")[0], self.unreachable)
        self.assertEqual(self.hits("redis")[0], self.unreachable)
        self.assertEqual(self.hits("count references", kind="failure"), [self.crash])

    def test_a_hit_shows_what_was_done_instead(self) -> None:
        (hit,) = self.search("broker unreachable", kind="failure").results
        self.assertIn("Redis", hit["snippet"])
