"""Settings of the server, its worker, and commands that need the whole hub."""

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


# Lazy, because most commands never use the secret, so its file is read or created on first use
class _LateSecret(SimpleLazyObject):  # type: ignore[type-arg]
    def __bool__(self) -> bool:
        return True  # django.setup() asks in every command


SECRET_KEY = _LateSecret(lambda: read_or_create_secret(SECRET_KEY_FILE))
DEBUG = False
# `serve --public-url` adds to these; its address, and the proxy's header with a person's name
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
CSRF_TRUSTED_ORIGINS: list[str] = []
PUBLIC_URL = ""
REMOTE_USER_HEADER = ""

INSTALLED_APPS = [
    "memoryhub.web.site.HubAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "memoryhub.web",  # its `runserver`
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_q",
    *STORE_APPS,
]

MIDDLEWARE = [
    "memoryhub.web.middleware.PrivateResponses",
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
    "memoryhub.web.signin.ProxySignIn",
    "memoryhub.web.middleware.CallersGrant",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # Last: all checks above run before a store is opened
    "memoryhub.web.middleware.CurrentStore",
]

ROOT_URLCONF = "memoryhub.urls"
# URLs under /p/<project>/, /o/<organisation>/ and /global/
STORE_URLCONF = "memoryhub.web.store_urls"
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
                "memoryhub.core.admin.base.rights",
            ]
        },
    }
]

STATIC_URL = "/static/"
# Static files are served from their packages; there is no collectstatic step
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
WHITENOISE_MAX_AGE = 300

# Own names, because cookies are shared by all ports of a host, so other local servers could overwrite them
SESSION_COOKIE_NAME = "memoryhub_session"
SESSION_COOKIE_HTTPONLY = True
# Not Strict: after a sign-in link on another site, ``/`` must see the cookie
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "memoryhub_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Strict"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
LOGIN_URL = "/admin/login/"
X_FRAME_OPTIONS = "DENY"

# Bytes of a request's body
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

Q_CLUSTER = {
    "name": "memory-hub",
    "orm": "jobs",
    "workers": 1,
    "poll": 2,
    "timeout": 1800,
    "retry": 3600,
    "max_attempts": 2,
    "catch_up": False,
    "scheduler": False,  # the worker queues what is due itself
    "save_limit": 500,
    "label": "Jobs",
    "log_level": "WARNING",
}
if env.database_url():  # other machines may have workers too
    Q_CLUSTER["broker_class"] = "memoryhub.ops.jobs.schedules.SharedQueue"
