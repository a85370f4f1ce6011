"""Settings of the web server, its worker and every command that needs the whole hub."""

from __future__ import annotations

import os
from pathlib import Path

from django.utils.functional import SimpleLazyObject

from memoryhub import env
from memoryhub.core.secret_files import SECRET_KEY as SECRET_KEY_FILE
from memoryhub.core.secret_files import read_or_create_secret
from memoryhub.settings_store import *  # noqa: F403
from memoryhub.settings_store import INSTALLED_APPS as STORE_APPS

PACKAGE = Path(__file__).parent
# In a wheel the templates are inside the package; in a checkout they are beside it.
TEMPLATE_FOLDERS = (PACKAGE / "templates", PACKAGE.parent / "templates")

os.umask(env.PRIVATE_UMASK)


class _LateSecret(SimpleLazyObject):  # type: ignore[type-arg]
    """A secret whose file is read, or made, when the secret is first used, not when the settings are loaded."""

    def __bool__(self) -> bool:
        return True  # asked by django.setup() in every command; most never use the secret


SECRET_KEY = _LateSecret(lambda: read_or_create_secret(SECRET_KEY_FILE))
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "memoryhub.web.site.HubAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "ninja",
    "django_q",
    *STORE_APPS,
]

MIDDLEWARE = [
    "memoryhub.web.middleware.ContentSecurityPolicy",
    "memoryhub.web.middleware.ApiProblems",
    "memoryhub.web.middleware.KnownHost",
    "memoryhub.web.middleware.ViewerTimeZone",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "memoryhub.web.middleware.StoreAddress",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # The last, because it calls the view: every check above comes before a store is opened.
    "memoryhub.web.middleware.CurrentStore",
]

ROOT_URLCONF = "memoryhub.urls"
STORE_URLCONF = "memoryhub.web.store_urls"
"""What is under ``/p/<project>/``, ``/o/<organisation>/`` and ``/global/``."""
WSGI_APPLICATION = "memoryhub.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [next(filter(Path.is_dir, TEMPLATE_FOLDERS))],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "memoryhub.core.admin.access.rights",
            ]
        },
    }
]

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
"""Files are served from the packages that bring them; there is no collectstatic step."""
WHITENOISE_AUTOREFRESH = False
WHITENOISE_MAX_AGE = 300

# Cookies are shared by all ports of one host: names of our own keep other local servers from overwriting them.
SESSION_COOKIE_NAME = "memoryhub_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
"""Not Strict: a sign-in link that was clicked in a web page leads to ``/``, which must see the cookie."""
CSRF_COOKIE_NAME = "memoryhub_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Strict"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
LOGIN_URL = "/admin/login/"
X_FRAME_OPTIONS = "DENY"

DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
"""Bytes of a request's body, at every door of the web."""

Q_CLUSTER = {
    "name": "memory-hub",
    "orm": "jobs",
    "workers": 1,
    "poll": 2,
    "timeout": 1800,
    "retry": 3600,
    "max_attempts": 2,
    "catch_up": False,
    "save_limit": 500,
    "label": "Jobs",
    "log_level": "WARNING",
}
