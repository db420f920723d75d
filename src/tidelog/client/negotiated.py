"""A connection that has asked the broker which versions it speaks."""

from typing import Any, Final

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.admin import ApiVersionsRequest
from tidelog.wire.schema import Message, UnsupportedVersion, spec_of

API_VERSIONS_FIRST: Final = 0  # the one version that every broker since 0.10 answers


class NegotiatedConnection(Connection):
    """Chooses for every request the newest version both sides know."""

    def __init__(self, host: str, port: int, timeout: float = 10.0, *, client_id: str | None = "tidelog") -> None:
        super().__init__(host, port, timeout, client_id=client_id)
        try:
            answer = super().call(ApiVersionsRequest(), API_VERSIONS_FIRST)
        except BaseException:
            self.close()
            raise
        if answer.error_code:
            self.close()
            raise KafkaError(f"{host}:{port} does not say which versions it speaks", ErrorCode(answer.error_code))
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def version_of(self, request: type[Message]) -> int:
        """The version `request` will be sent in; UnsupportedVersion when there is none in common."""
        spec = spec_of(request)
        low, high = self._ranges.get(spec.key, (0, -1))
        version: int = min(spec.max, high)
        if version < max(spec.min, low):
            raise UnsupportedVersion(spec.name, version, low, high)
        return version

    def ask(self, request: Message) -> Any:
        return self.call(request, self.version_of(type(request)))
