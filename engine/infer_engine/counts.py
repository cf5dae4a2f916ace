"""Numbers that another process tells, as its messages' decoder lets them pass: beyond these they are none of
a replica's, and arithmetic with them would fail far from where they came in."""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]
#: Finite, too: a NaN is not at least 0.
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Rate = Annotated[float, Meta(ge=0, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
