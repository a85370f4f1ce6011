"""Sign-in links, sessions, and the sessions of people whom a proxy names."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client, override_settings

from memoryhub.core import clock
from memoryhub.core.errors import Gone
from memoryhub.core.jobs import find_job
from memoryhub.models import SignInLink
from memoryhub.ops.jobs import run_job
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.web import signin
from tests.api.client import RestTestCase
from tests.support import HubTestCase


class SignInTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client = self.browser()
        self.owner = signin.ensure_owner()

    def browser(self, **options: Any) -> Client:
        return Client(headers={"host": "localhost"}, **options)


class LinkTests(SignInTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.token = signin.create_link_token()
        self.path = f"/signin/{self.token}"

    def test_a_link_signs_the_owner_in_once(self) -> None:
        self.assertRedirects(self.client.get(self.path), "/")
        self.assertContains(self.browser().get(self.path), "already used", status_code=410)
        self.assertEqual(self.client.get("/").context["user"].get_username(), "owner")

    def test_a_link_expires_after_a_quarter_of_an_hour_and_is_forgotten(self) -> None:
        now = clock.now()
        with clock.frozen(now):
            late, in_time = signin.create_link_token(), signin.create_link_token()
        with clock.frozen(now + timedelta(minutes=14, seconds=59)):
            self.assertEqual(signin.redeem_link_token(in_time).get_username(), "owner")
        with clock.frozen(now + timedelta(minutes=15)), self.assertRaises(Gone):
            signin.redeem_link_token(late)
        with clock.frozen(now + timedelta(hours=1)):
            signin.create_link_token()
        self.assertEqual(SignInLink.objects.count(), 1)

    def test_only_the_hash_of_256_bits_is_kept(self) -> None:
        self.assertGreaterEqual(len(self.token) * 6, 256)
        link = SignInLink.objects.get()
        self.assertEqual(link.token_hash, hashlib.sha256(self.token.encode()).hexdigest())
        self.assertNotIn(self.token, " ".join(map(str, vars(link).values())))

    def test_a_preview_or_a_page_that_is_fetched_ahead_uses_nothing_up(self) -> None:
        self.assertEqual(self.client.head(self.path).status_code, 200)
        for headers in ({"sec-purpose": "prefetch;prerender"}, {"purpose": "prefetch"}, {"x-moz": "prefetch"}):
            with self.subTest(headers=headers):
                self.assertEqual(self.client.get(self.path, headers=headers).status_code, 425)
        for method in ("put", "delete", "options", "patch"):
            self.assertEqual(getattr(self.client, method)(self.path).status_code, 405)
        self.assertNotIn("memoryhub_session", self.client.cookies)
        self.assertRedirects(self.client.get(self.path), "/")

    def test_a_link_on_another_sites_page_asks_before_it_signs_in(self) -> None:
        strict = self.browser(enforce_csrf_checks=True)
        page = strict.get(self.path, headers={"sec-fetch-site": "cross-site"})
        self.assertContains(page, '<form method="post"')
        self.assertNotIn("memoryhub_session", strict.cookies)
        self.assertEqual(strict.post(self.path).status_code, 403)
        for status in (302, 410):
            form = {"csrfmiddlewaretoken": strict.cookies["memoryhub_csrf"].value}
            self.assertEqual(strict.post(self.path, form).status_code, status)
            self.assertEqual(strict.get("/").context["user"].get_username(), "owner")

    def test_a_link_that_never_was_is_gone_too(self) -> None:
        for token in ("x", "%00", "ü", "a" * 5000):
            with self.subTest(token=token[:5]):
                self.assertEqual(self.client.get(f"/signin/{token}").status_code, 410)


class SignedOutTests(SignInTestCase):
    def test_who_is_signed_out_is_told_how_to_get_a_link(self) -> None:
        with self.store("alpha"):
            pass
        for path in ("/", "/p/alpha/admin/", "/p/alpha/admin/memories/memory/"):
            with self.subTest(path=path):
                page = self.client.get(path, follow=True)
                self.assertContains(page, "memory-hub signin")
                self.assertNotContains(page, "alpha</")
                self.assertNotContains(page, 'type="password"')

    def test_the_owner_is_made_once_and_no_password_signs_in(self) -> None:
        self.assertEqual(signin.ensure_owner(), self.owner)
        self.assertFalse(self.owner.has_usable_password())
        self.assertTrue(self.owner.is_superuser and self.owner.is_staff)
        self.assertFalse(self.client.login(username="owner", password=""))
        get_user_model().objects.create_superuser("boss", password="secret")
        self.client.post("/p/alpha/admin/login/", {"username": "boss", "password": "secret"})
        self.assertNotIn("memoryhub_session", self.client.cookies)

    def test_signing_out_ends_the_session(self) -> None:
        self.client.force_login(self.owner)
        self.assertEqual(self.client.get("/signout").status_code, 405)
        self.assertRedirects(self.client.post("/signout"), "/admin/login/")
        self.assertRedirects(self.client.get("/"), "/admin/login/", fetch_redirect_response=False)


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
