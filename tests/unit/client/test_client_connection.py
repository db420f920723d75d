"""The raw client against a socket that answers by script."""

import contextlib
import socket
import threading

import pytest

from tidelog.client import Connection, ConnectionClosed
from tidelog.errors import MalformedMessage
from tidelog.wire.frames import decode_request_header, encode_response, frame_length
from tidelog.wire.messages.admin import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.data import ProduceRequest
from tidelog.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.schema import API, decode, encode

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
KNOWN = ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))


def recv_exactly(sock, size):
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return data


@contextlib.contextmanager
def peer(answer):
    """A listener that gives every frame to `answer(header, body)` and sends what it returns; None hangs up."""

    def serve():
        conn, _ = listener.accept()
        with conn:
            while (length := recv_exactly(conn, 4)) is not None:
                frame = recv_exactly(conn, frame_length(length))
                header = decode_request_header(frame)
                reply = answer(header, frame[header.body :])
                if reply is None:
                    return
                conn.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with Connection("127.0.0.1", listener.getsockname()[1], timeout=60) as connection:
            yield connection
        thread.join(60)
        assert not thread.is_alive()


def respond(header, message, correlation_id=None):
    number = header.correlation_id if correlation_id is None else correlation_id
    return encode_response(header.api_key, header.api_version, number, encode(message, header.api_version))


def test_call_uses_the_newest_version_unless_told():
    seen = []

    def answer(header, body):
        seen.append((header.api_version, header.client_id, decode(ApiVersionsRequest, header.api_version, body)))
        return respond(header, KNOWN)

    with peer(answer) as connection:
        assert connection.call(ASK) == KNOWN
        assert connection.call(ASK, version=3) == KNOWN
    assert seen == [(API[18].max, "tidelog", ASK), (3, "tidelog", ASK)]


def test_pipelined_answers_come_in_order():
    beats = [HeartbeatRequest(group_id="g", generation_id=n, member_id="m") for n in range(20)]

    def answer(header, body):
        generation = decode(HeartbeatRequest, header.api_version, body).generation_id
        return respond(header, HeartbeatResponse(throttle_time_ms=generation))

    with peer(answer) as connection:
        for beat in beats:
            connection.send(beat)
        assert connection.in_flight == 20
        with pytest.raises(RuntimeError, match="20 answers"):
            connection.call(beats[0])
        assert [connection.receive().throttle_time_ms for _ in beats] == list(range(20))
        with pytest.raises(RuntimeError, match="no request"):
            connection.receive()


def test_a_produce_that_wants_no_answer_gets_none():
    with peer(lambda header, body: b"") as connection:
        assert connection.call(ProduceRequest(acks=0, timeout_ms=0, topic_data=())) is None
        assert connection.in_flight == 0


def test_a_broker_that_hangs_up():
    with peer(lambda header, body: None) as connection, pytest.raises(ConnectionClosed, match="0 of 4 bytes"):
        connection.call(ASK)


def test_an_answer_to_another_request_is_refused():
    with peer(lambda header, body: respond(header, KNOWN, 999)) as connection, pytest.raises(MalformedMessage):
        connection.call(ASK)


def test_an_absurd_frame_is_refused_before_it_is_read():
    reply = b"\x7f\xff\xff\xff"
    with peer(lambda header, body: reply) as connection, pytest.raises(MalformedMessage, match="2147483647"):
        connection.call(ASK)


def test_raw_bytes_both_ways():
    with peer(lambda header, body: respond(header, KNOWN)) as connection:
        connection.send_raw(bytes.fromhex("0000000a 0012 0000 00000005 ffff"))
        frame = connection.recv_frame()
        assert frame[:4] == (5).to_bytes(4, "big")
        assert decode(ApiVersionsResponse, 0, frame, 4) == KNOWN
