"""REST framework's routes with format suffixes: those of a router, and those that are added to plain ones."""

from __future__ import annotations

from typing import Any, ClassVar

from django.urls import include, path
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter
from rest_framework.urlpatterns import format_suffix_patterns
from rest_framework.viewsets import ViewSet

from throttle.django import limit


class Items(ViewSet):
    throttle_classes: ClassVar[tuple[type, ...]] = ()

    def list(self, request: Any, format: str | None = None) -> Response:
        return Response([])

    def retrieve(self, request: Any, pk: str, format: str | None = None) -> Response:
        return Response({"pk": pk})


@api_view(["GET"])
def items(request: Any, format: str | None = None) -> Response:
    return Response([])


@limit("2/min", key="address")
@api_view(["GET"])
def limited(request: Any, format: str | None = None) -> Response:
    return Response([])


router = DefaultRouter()
router.register("items", Items, basename="items")
plain = format_suffix_patterns([path("items", items), path("limited", limited)])
urlpatterns = [
    path("router/", include(router.urls)),
    path("plain/", include(plain)),
    path("other.json", items),
]
