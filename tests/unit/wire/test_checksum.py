"""CRC-32C as Kafka's batches have it, and where it comes from."""

import os
import subprocess
import sys
from pathlib import Path

import crc32c as package

from tidelog.wire.checksum import crc32c


def test_it_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the polynomial's definition
    assert crc32c(b"") == 0


def test_it_continues_over_pieces_and_takes_any_buffer() -> None:
    data = bytes(range(256)) * 41
    assert crc32c(memoryview(data)[5:], crc32c(bytearray(data[:5]))) == crc32c(data) == package.crc32c(data)


def test_a_package_without_the_extension_is_imported_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "crc32c").mkdir()
    (tmp_path / "crc32c" / "__init__.py").write_text("def crc32c(data, value=0):\n    return 42\n")
    script = "from tidelog.wire.checksum import crc32c; print(crc32c(b''))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "42\n"
