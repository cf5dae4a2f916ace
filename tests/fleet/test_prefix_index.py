"""Who holds which beginnings: the replicas' own hashes, bounded, and gone with a life."""

from infer_engine.core.prefix import PrefixIndex
from infer_engine.core.request import Request
from infer_engine.fleet.prefix_index import MOST_CHAIN_BLOCKS, SWEEP_FROM, HeldPrefixes, extend_chain


def chain(tokens: int, *, first: int = 0, salt: str = "default") -> list[bytes]:
    made: list[bytes] = []
    extend_chain(made, salt, range(first, first + tokens), 4)
    return made


def test_the_hashes_are_the_replicas_own() -> None:
    request = Request("a", list(range(12)), 4, 0.0, cache_salt="blue")
    request.block_table = [0, 1, 2]
    index = PrefixIndex(4, enabled=True)
    index.add(request, 0, 3)
    assert chain(12, salt="blue") == list(index.blocks)
    assert chain(12, salt="green")[0] not in index.blocks


def test_only_full_blocks_and_no_more_than_the_most() -> None:
    assert len(chain(15)) == 3
    assert len(chain(4 * MOST_CHAIN_BLOCKS + 400)) == MOST_CHAIN_BLOCKS
    grown = chain(8)
    extend_chain(grown, "default", range(16), 4)
    assert grown == chain(16)


def test_each_replica_holds_as_far_as_it_goes_without_a_gap() -> None:
    index, whole = HeldPrefixes(), chain(32)
    index.add("a", whole)
    index.add("b", whole[:3])
    index.add("c", whole[:5])
    assert index.held(whole) == {"a": 8, "b": 3, "c": 5}
    index.remove("a", [whole[2]])
    assert index.held(whole) == {"a": 2, "b": 3, "c": 5}
    assert [index.blocks_of(each, whole) for each in "abcd"] == [2, 3, 5, 0]
    assert index.held(chain(32, first=1)) == {}


def test_it_is_bounded_and_tails_go_before_heads() -> None:
    index = HeldPrefixes(10)
    index.add("a", chain(32))
    index.add("b", chain(24, first=1_000))
    assert len(index) == 10
    assert index.held(chain(32)) == {"a": 4}
    assert index.held(chain(24, first=1_000)) == {"b": 6}


def test_an_ended_life_holds_nothing_and_its_bit_is_used_again() -> None:
    index, whole = HeldPrefixes(), chain(32)
    index.add("keeps", whole)
    for life in range(10 * SWEEP_FROM):
        index.add("dies", whole[: 1 + life % 8])
        assert index.held(whole)["dies"] == 1 + life % 8
        index.forget("dies")
        assert index.held(whole) == {"keeps": 8}
    assert len(index._names) <= SWEEP_FROM + 2  # pyright: ignore[reportPrivateUsage]
