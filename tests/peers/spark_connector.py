"""Spark with its own Kafka connector, in a virtual environment of its own.

Of a Spark whose connector and all it needs could be had when this was written: the jars of one release do not all
appear at once.
"""

import subprocess
import sys
from pathlib import Path

from .kafka_server import CACHE, downloaded

SPARK = "4.0.0"
HOME = CACHE.parent / f"spark-{SPARK}"


def python() -> Path:
    """An interpreter that has this PySpark, and nothing of ours."""
    found = HOME / "venv" / "bin" / "python"
    if not (HOME / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True, timeout=300)
        install = [str(found), "-m", "pip", "install", "-q", f"pyspark=={SPARK}"]
        subprocess.run(install, check=True, timeout=900)
        (HOME / "complete").touch()
    return found


def connector() -> str:
    """The jars, as `spark.jars` wants them. What Spark has itself stays out."""
    place = downloaded(HOME / "jars", [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}"])
    own = {jar.name.rsplit("-", 1)[0] for jar in (HOME / "venv").glob("lib/python*/site-packages/pyspark/jars/*.jar")}
    return ",".join(str(jar) for jar in sorted(place.glob("*.jar")) if jar.name.rsplit("-", 1)[0] not in own)
