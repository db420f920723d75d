"""`tidelog version`: what this is, and what it runs on."""

from tidelog import __version__


def version() -> None:
    """Print the versions of tidelog and what it runs on."""
    import platform

    import confluent_kafka

    print(f"tidelog {__version__}")
    print(f"python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}")
