"""Peers from Debian's packages, unpacked into the cache: nothing is installed and no service is started."""

import os
import shutil
import subprocess
from pathlib import Path

from bench.peers.servers.broker import Absent

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "peers"


def unpacked(package: str) -> Path:
    """The directory that holds this package, and all it needs that is not installed, as if it were `/`."""
    root = CACHE / package
    if (root / "complete").exists():
        return root
    if not shutil.which("apt-get"):
        raise Absent("no apt-get here")
    archives = CACHE / "archives" / package
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--download-only"]
    done = subprocess.run(
        [*download, "-o", f"Dir::Cache::archives={archives}", package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Absent(f"apt-get cannot fetch {package}: {done.stderr.strip().splitlines()[-1:]}")
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True)
    shutil.rmtree(archives)
    (root / "complete").touch()
    return root


def version(package: str) -> str:
    """As Debian names it."""
    shown = subprocess.run(["apt-cache", "show", package], capture_output=True, text=True, check=False).stdout
    for line in shown.splitlines():
        if line.startswith("Version: "):
            return line.removeprefix("Version: ")
    raise Absent(f"Debian has no package {package}")


def environment(root: Path) -> dict[str, str]:
    """So that unpacked programs find unpacked libraries."""
    libraries = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
    programs = f"{root}/usr/sbin:{root}/usr/bin"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "PATH": f"{programs}:{os.environ['PATH']}"}
