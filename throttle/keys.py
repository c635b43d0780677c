"""Names in Redis. One scope is one hash slot; text from outside can change neither slot nor structure."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote

from throttle.errors import ThrottleError

#: The keys of a scope's backlog, in the order every script takes them.
PARTS = (
    "limits", "meta", "line", "messages", "ready", "waiting", "delayed", "flight", "tickets", "releases", "stale",
)  # fmt: skip

#: No key of kombu begins like this: it uses queue names, _kombu.*, unacked*, and celery-task-meta-*.
PREFIX = "throttle"

_LONG = 64

#: No text, and what stands for "no key".
_RESERVED = {"": "%", "-": "%2D"}


def apart(key: str) -> str:
    """The name of a bucket that has a Redis Cluster slot of its own: without braces, all of it is hashed.

    No other text in a name has braces: all that comes from outside is quoted, and a prefix is refused.
    """
    return key.replace("{", "", 1).replace("}", "", 1)


class Namer:
    """Builds every key name of one deployment.

    Args:
        prefix: what all keys begin with.
        secret: keys the digest under which long identities are stored, so that a dump does not tell them.
    """

    def __init__(self, prefix: str = PREFIX, secret: str = "") -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise ThrottleError(f"prefix {prefix!r} must be some text without braces")
        self.prefix, self._secret = prefix, secret.encode()[:64]
        #: What tells this one from another.
        self.terms = (prefix, secret)
        self.leader = f"{prefix}:leader"
        self.scopes = f"{prefix}:scopes"
        self.channel = f"{prefix}:wake"
        self._short = lru_cache(4096)(self._identity)

    def identity(self, key: object) -> str:
        """A key as it stands in Redis: readable where short, a keyed digest (BLAKE2b) where long."""
        text = str(key)  # before the cache: to it, 1 and True are one, and a list is an error
        return self._short(text) if len(text) <= _LONG else self._digest(text)

    def _identity(self, text: str) -> str:
        quoted = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
        if len(quoted) > _LONG:
            return self._digest(text)
        return _RESERVED.get(quoted, quoted)

    def _digest(self, text: str) -> str:
        return "~" + blake2b(text.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=20).hexdigest()

    def scope(self, scope: str) -> str:
        """What the keys of one scope begin with; the braces make it one Redis Cluster hash slot."""
        return f"{self.prefix}:{{{self.identity(scope)}}}:"

    def backlog(self, scope: str) -> list[str]:
        """The keys of a scope's backlog."""
        return self.tagged(self.identity(scope))

    def tagged(self, tag: str) -> list[str]:
        """The keys of the backlog of a scope that is called so in Redis."""
        return [f"{self.prefix}:{{{tag}}}:{part}" for part in PARTS]
