"""A page of metrics in Prometheus' text format, as somebody else's server wrote it: untrusted."""

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_fd_to_metric_families

from infer_engine.foreign.not_understood import NotUnderstoodError

#: Samples beyond this are no metrics page of an inference server.
MAX_SAMPLES = 100_000
#: Nor is a longer line one: reading a line takes as long as the square of it.
MAX_LINE_CHARS = 65_536

Labels = Mapping[str, str]
#: Upper bound of a bucket (inf for the last) to how many observations are at most as high.
Buckets = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Page:
    """Samples by name. A value that is not finite is as good as none."""

    samples: dict[str, list[tuple[Labels, float]]] = field(
        default_factory=dict[str, list[tuple[Labels, float]]]
    )

    @classmethod
    def read(cls, text: str) -> "Page":
        """Raise NotUnderstoodError for what is not such a page."""
        samples: dict[str, list[tuple[Labels, float]]] = {}
        count = 0
        try:
            for family in text_fd_to_metric_families(io.StringIO("".join(_lines(text)))):
                for sample in family.samples:
                    count += 1
                    if count > MAX_SAMPLES:
                        raise NotUnderstoodError(f"/metrics has more than {MAX_SAMPLES} samples")
                    value = finite(sample.value)
                    if value is not None:
                        samples.setdefault(sample.name, []).append((sample.labels, value))
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # as that parser fails
            raise NotUnderstoodError(f"/metrics is not Prometheus text: {str(error)[:80]}") from error
        return cls(samples)

    def of(self, names: Iterable[str]) -> list[tuple[Labels, float]]:
        """The samples of the first of these names that the page has: newer names stand before older ones."""
        for name in names:
            if found := self.samples.get(name):
                return found
        return []

    def ranks(self, names: Iterable[str], label: str, most: int) -> dict[str | None, "Page"]:
        """A page of each rank's own samples, by the values that ``label`` has in the first of these names,
        numbers first, at most ``most``; the page itself, under None, where the label is not used."""
        found = {labels[label] for labels, _ in self.of(names) if label in labels}
        if not found:
            return {None: self}
        numbers_first = sorted(found, key=lambda rank: (not rank.isdigit(), len(rank), rank))[:most]
        pages: dict[str | None, Page] = {rank: Page({}) for rank in numbers_first}
        for name, samples in self.samples.items():
            for labels, value in samples:
                if (page := pages.get(labels.get(label))) is not None:
                    page.samples.setdefault(name, []).append((labels, value))
        return pages

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.samples)

    def value(
        self, names: Iterable[str], of: Callable[[Labels], bool], *, highest: bool = False
    ) -> float | None:
        """The sum over the series that ``of`` takes, or the highest of them where several tell the same;
        None where there is none, or no number holds it."""
        found = [value for labels, value in self.of(names) if of(labels)]
        if not found:
            return None
        return finite(max(found) if highest else sum(found))

    def by_label(self, names: Iterable[str], label: str, of: Callable[[Labels], bool]) -> dict[str, float]:
        """Sums by the values of one label."""
        sums: dict[str, float] = {}
        for labels, value in self.of(names):
            if of(labels) and label in labels:
                sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def buckets(self, names: Iterable[str], of: Callable[[Labels], bool]) -> Buckets:
        """A histogram, merged over the series that ``of`` takes; empty where there is none."""
        merged: dict[float, float] = {}
        for labels, value in self.of(f"{name}_bucket" for name in names):
            if not of(labels):
                continue
            try:
                bound = float(labels.get("le", ""))
            except ValueError:
                continue  # a bucket without a bound counts nothing
            merged[bound] = merged.get(bound, 0.0) + value
        return merged


def finite(value: float) -> float | None:
    """None for what is no number, or none that a float holds."""
    try:
        number = float(value)  # digits without a point may be an integer of any size
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _lines(text: str) -> Iterator[str]:
    """With comments as short as they can be written: the parser looks through each of their blanks for the
    rest of the line."""
    for line in io.StringIO(text):
        if len(line) > MAX_LINE_CHARS:
            raise NotUnderstoodError(f"/metrics has a line of more than {MAX_LINE_CHARS:,} characters")
        yield " ".join(line.split()) + "\n" if line.lstrip().startswith("#") else line
