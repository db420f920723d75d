"""Record bytes on a screen and in JSON. They are somebody else's bytes: nothing in them may steer a terminal."""

from base64 import b64encode
from datetime import UTC, datetime


def printable(data: bytes | None) -> str:
    if data is None:
        return "(null)"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """Client ids, group names and reasons are somebody else's words as well."""
    return printable(text.encode("utf-8", "backslashreplace"))


def json_bytes(data: bytes | None) -> object:
    """Text as a string; anything else as {"base64": …}: no byte is lost, and neither is mistaken for the other."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def when(timestamp_ms: int) -> str:
    """The time a record claims, which its producer may have chosen at will: the number itself beyond the year 9999."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
