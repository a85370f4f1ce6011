from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client, override_settings

from memoryhub.core import clock
from memoryhub.core.jobs import find_job
from memoryhub.ops.jobs import run_job
from memoryhub.registry.people import PersonAdd, add_person
from tests.api.client import RestTestCase


class ProxySessionTests(RestTestCase):
    @override_settings(REMOTE_USER_HEADER="Remote-User")
    def test_a_request_of_the_api_without_a_cookie_saves_no_session(self) -> None:
        add_person(command=PersonAdd(name="ann", role="viewer"))
        for _ in range(3):
            browser = Client(headers={"host": "localhost"}, REMOTE_USER="ann")
            self.assertEqual(browser.get("/api/v1/projects/alpha").status_code, 200)
        self.assertEqual(Session.objects.count(), 0)
        self.assertEqual(browser.get("/").status_code, 200)
        self.assertEqual(Session.objects.count(), 1)

    def test_a_daily_job_deletes_sessions_that_have_expired(self) -> None:
        user = User.objects.create_user("eve")
        for _ in range(2):
            Client(headers={"host": "localhost"}).force_login(user)
        expired = Session.objects.first()
        assert expired
        Session.objects.filter(pk=expired.pk).update(expire_date=clock.now() - timedelta(days=1))
        for moment in (clock.now(), clock.now() + timedelta(hours=13)):  # ages are counted to the run before
            with clock.frozen(moment):
                run_job(job=find_job("clear logins"), asked_by="ada")
        self.assertEqual(Session.objects.exclude(pk=expired.pk).count(), Session.objects.count())
        self.assertEqual(Session.objects.count(), 1)
