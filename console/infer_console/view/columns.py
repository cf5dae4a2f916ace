"""Which columns of a table the operator wants: shown where the width would leave them out, or hidden."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from infer_console.view.table import Column

Item = TypeVar("Item")


class ColumnChoice(NamedTuple):
    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()

    def changed(self, changes: Sequence[str]) -> "ColumnChoice":
        """After ``+x`` and ``-y``; each ``changes`` is one of these."""
        shown, hidden = set(self.shown), set(self.hidden)
        for change in changes:
            name = change[1:]
            into, out_of = (shown, hidden) if change.startswith("+") else (hidden, shown)
            into.add(name)
            out_of.discard(name)
        return ColumnChoice(frozenset(shown), frozenset(hidden))


def of_tokens(columns: Sequence[Column[Item]]) -> list[Column[Item]]:
    """Where a block is one token, tokens are what is counted; what the operator calls the column stays."""
    return [
        replace(column, head="KV tok", key="blocks") if column_name(column) == "blocks" else column
        for column in columns
    ]


def column_name(column: Column[Item]) -> str:
    """As an operator types it; the same at every width."""
    if column.head.strip() == "%":
        return "kv%"
    return column.key or column.head.partition(" ")[0].casefold().removesuffix("'s")


def wanted(columns: Sequence[Column[Item]], choice: ColumnChoice | None) -> list[Column[Item]]:
    """The first column is what the row is about: it stays."""
    if choice is None:
        return list(columns)
    return [
        replace(column, need=0) if column_name(column) in choice.shown else column
        for place, column in enumerate(columns)
        if not place or column_name(column) not in choice.hidden
    ]
