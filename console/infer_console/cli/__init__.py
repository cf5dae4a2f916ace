"""The command line. Light to import: what a verb needs is imported when it runs."""

from infer_console.cli.entry import main

__all__ = ["main"]
