"""Views of every kind."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from ninja import NinjaAPI
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from throttle import BacklogFull
from throttle.django import limit
from throttle.drf import AnonRateThrottle, RateThrottle, ScopedRateThrottle, UserRateThrottle


def plain(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse("plain")


async def aplain(request: Any) -> HttpResponse:
    return HttpResponse("aplain")


@limit("2/min", key="address")
def limited(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse("limited")


@limit("2/min", key="address")
async def alimited(request: Any) -> HttpResponse:
    return HttpResponse("alimited")


class Limited(View):
    @limit("2/min", key="user", methods="POST")
    def post(self, request: Any) -> HttpResponse:
        return HttpResponse("post")

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("get")


@method_decorator(limit("2/min", key="user"), name="dispatch")
class Decorated(View):
    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("get")


@limit("2/min", key="user")
class ALimited(View):
    async def get(self, request: Any) -> HttpResponse:
        return HttpResponse("aget")


@method_decorator(limit("2/min", key="user"), name="dispatch")
class ADecorated(View):
    async def get(self, request: Any) -> HttpResponse:
        return HttpResponse("aget")


class AMethod(View):
    @limit("2/min", key="user")
    async def get(self, request: Any) -> HttpResponse:
        return HttpResponse("aget")


def stream(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([b"a", b"b"]))


def full(request: Any) -> HttpResponse:
    raise BacklogFull("export", 100.0, 7.2)


async def afull(request: Any) -> HttpResponse:
    raise BacklogFull("export", 100.0, 7.2)


# -- REST framework ------------------------------------------------------------------------------------------


class Anon(APIView):
    throttle_classes = (AnonRateThrottle,)

    def get(self, request: Any) -> Response:
        return Response({"kind": "anon"})


class Export(APIView):
    throttle_classes = (UserRateThrottle, ScopedRateThrottle)
    throttle_scope = "export"

    def post(self, request: Any) -> Response:
        return Response({"kind": "export"}, status=202)


class Full(APIView):
    throttle_classes: ClassVar[tuple[type, ...]] = ()

    def post(self, request: Any) -> Response:
        raise BacklogFull("export", 100.0, 7.2)


class PerMinute(RateThrottle):
    rate, key = "2/min", "address"


@api_view(["GET"])
@throttle_classes([PerMinute])
def function(request: Any) -> Response:
    return Response({"kind": "function"})


@limit("2/min", key="address")
@api_view(["GET"])
def above(request: Any) -> Response:
    return Response({"kind": "above"})


@api_view(["GET"])
@limit("2/min", key="address")
def below(request: Any) -> Response:
    return Response({"kind": "below"})


class Items(ViewSet):
    throttle_classes = (PerMinute,)

    def retrieve(self, request: Any, pk: str) -> Response:
        return Response({"pk": pk})


router = SimpleRouter()
router.register("items", Items, basename="items")

# -- Ninja ---------------------------------------------------------------------------------------------------

ninja = NinjaAPI()


@ninja.get("/limited")
@limit("2/min", key="address")
def ninja_limited(request: Any, page: int = 0) -> dict[str, int]:
    return {"page": page}


@ninja.get("/alimited")
@limit("2/min", key="address")
async def ninja_alimited(request: Any, page: int = 0) -> dict[str, int]:
    return {"page": page}


urlpatterns = [
    path("", plain),
    path("sms/<int:id>/", plain),
    path("async/", aplain),
    path("limited/", limited),
    path("limited/<int:id>/", limited),
    path("alimited/", alimited),
    path("class/limited/", Limited.as_view()),
    path("class/decorated/", Decorated.as_view()),
    path("class/alimited/", ALimited.as_view()),
    path("class/adecorated/", ADecorated.as_view()),
    path("class/amethod/", AMethod.as_view()),
    path("stream/", stream),
    path("full/", full),
    path("afull/", afull),
    re_path(r"^old/(?P<year>[0-9]{4})/$", plain),
    path("health/", plain),
    path("drf/anon/", Anon.as_view()),
    path("drf/export/", Export.as_view()),
    path("drf/full/", Full.as_view()),
    path("drf/function/", function),
    path("drf/above/", above),
    path("drf/below/", below),
    path("drf/", include(router.urls)),
    path("ninja/", ninja.urls),
]
