"""Safety of the port: which `Host` and `Origin` a request may carry. Pure.

A page of another site must neither read nor write here through a visitor's browser.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def refusal_of(
    hosts: Sequence[str], origins: Sequence[str], *, writing: bool, allowed: tuple[str, ...]
) -> str | None:
    """`refusal` of a request by all its header lines of these names.

    Of several nobody knows which one counts, here and in what stands before us: they are foreign.
    """
    host = hosts[0] if len(hosts) == 1 else None
    origin = "null" if len(origins) > 1 else next(iter(origins), None)
    return refusal(host, origin, writing=writing, allowed=allowed)


def refusal(
    host: str | None, origin: str | None, *, writing: bool, allowed: tuple[str, ...]
) -> str | None:
    """Why a request is refused, in words, or None. `writing` is true for WebSockets too."""
    name, port = _split(host or "")
    if not name or not (_is_loopback(name) or name in allowed):
        return (
            f"This server does not answer to the host {(host or '')[:200]!r}; "
            "name it in DUET_ALLOWED_HOSTS to allow it."
        )
    if writing and origin is not None and not _same(origin, name, port):
        return f"Requests from the origin {origin[:200]!r} are not allowed here."
    return None


def _split(host: str) -> tuple[str, int | None]:
    """Host name, lower-cased and without brackets, and port; an empty name for nonsense."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return "", None
        return (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", None


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _same(origin: str, name: str, port: int | None) -> bool:
    scheme, _, rest = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower())
    if default is None:
        return False
    other_name, other_port = _split(rest)
    return other_name == name and (other_port or default) == (port or default)
