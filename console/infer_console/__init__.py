"""Drawn, operated and connected from a terminal: the operator's side of infer-console."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("infer-console")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"
