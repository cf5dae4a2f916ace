"""Which version of infer-console this is, as it was installed."""

from importlib import metadata


def version() -> str:
    """``unknown`` where it runs without being installed."""
    try:
        return metadata.version("infer-console")
    except metadata.PackageNotFoundError:
        return "unknown"
