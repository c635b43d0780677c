"""A client for WSGI apps in this process, that checks what PEP 3333 asks of both sides; and random requests."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, NamedTuple
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from hypothesis import strategies as st

PEER = "192.0.2.1"


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def __getitem__(self, name: Any) -> Any:
        [value] = self.all(name)  # exactly one
        return value


def environ(
    method: str = "GET", path: str = "/", headers: Iterable[tuple[str, str]] = (), body: bytes = b"", **more: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "REQUEST_METHOD": method, "PATH_INFO": path.encode("utf-8", "surrogatepass").decode("latin-1"),
        "SCRIPT_NAME": "", "REMOTE_ADDR": PEER, "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": "application/x-www-form-urlencoded", "QUERY_STRING": "",
    }  # fmt: skip
    for name, value in headers:  # several lines of one name as servers join them
        key = "HTTP_" + name.upper().replace("-", "_")
        made[key] = f"{made[key]},{value}" if key in made else value
    setup_testing_defaults(made)
    made.update(more)
    return made


def call(app: Any, *, valid: bool = True, env: dict[str, Any] | None = None, **request: Any) -> Answer:
    """One request; an error of the app's is raised here."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started[:] = [int(status[:3]), headers]
        return lambda data: None

    app = validator(app) if valid else app
    parts = app(env or environ(**request), start_response)
    try:
        body = b"".join(parts)
    finally:
        getattr(parts, "close", lambda: None)()
    return Answer(started[0], list(started[1]), body)


# -- random requests -----------------------------------------------------------------------------------------

_latin = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40)
_addresses = st.ip_addresses().map(str)
_forwarded = st.one_of(_latin, _addresses, st.lists(_addresses, max_size=4).map(", ".join))
_headers = st.one_of(
    st.tuples(st.sampled_from(["X-Forwarded-For", "Forwarded", "X-Real-IP"]), _forwarded),
    st.tuples(st.sampled_from(["X-API-Key", "Authorization", "Cookie", "Origin", "Accept", "A_B"]), _latin),
)


def requests(*paths: str) -> Any:
    """Requests for these paths and for others, as anybody may send them."""
    path = st.one_of(
        st.sampled_from(paths),
        st.tuples(st.sampled_from(paths), st.text(max_size=8)).map("".join),
        st.text(max_size=30).map(lambda text: "/" + text),
    ).filter(lambda text: not any("\ud800" <= sign <= "\udfff" for sign in text))
    return st.fixed_dictionaries(
        {
            "method": st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PURGE"]),
            "path": path,
            "headers": st.lists(_headers, max_size=4),
            "body": st.binary(max_size=60),
            "REMOTE_ADDR": st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1", "10.0.0.1", "", "nonsense"]),
        }
    )
