"""What the operator typed to start the server, and the options that they know its settings by."""

import re
from typing import NamedTuple

#: What follows the options that say where the server is reached.
VALUES = {"control": "unix:///PATH", "listen": "HOST:PORT", "control_listen": "HOST:PORT"}
_SETTING = re.compile(r"(listen|control|control_listen|api_keys|token_file|join_listen|join_keys?): ")


class Caller(NamedTuple):
    """``name`` begins every error. ``by_options``: settings were given as options of a command."""

    name: str = "infer-engine"
    by_options: bool = False

    def error(self, message: str, setting: str | None = None) -> str:
        """One line; ``setting`` is the one to change."""
        if not self.by_options:
            return f"{self.name}: {message}"
        named = _SETTING.match(message)
        if named is not None:
            message = f"{option(named[1])}: {message[named.end() :]}"
        elif setting is not None:
            message += f"; {option(setting)} {VALUES[setting]} names another"
        return f"{self.name}: {message}"


def option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"
