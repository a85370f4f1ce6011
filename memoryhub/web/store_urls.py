"""URLs under ``/p/<project>/``, ``/o/<organisation>/`` and ``/global/``: the admin in that store."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path, re_path
from django.views.generic import RedirectView

from memoryhub.web import signin

admin.autodiscover()

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    re_path("^admin$", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/login/", signin.explain),
    path("admin/", admin.site.urls),
]
