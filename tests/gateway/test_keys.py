"""API keys: who gets in, as whom; and what a file of them may look like."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from infer_engine.gateway.key_gate import MOST_FAILURES
from infer_engine.gateway.keys import Keyring, KeysError, digest_of, parse_keys
from infer_engine.gateway.new_key import make_key
from infer_engine.model.tokenizer import Tokenizer
from support.gateway import TEXT, Gateway, serve_gateway
from support.scripted_fleet import say

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "ick_front_secret"


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "Hi", **fields}


def entry(**fields: Any) -> dict[str, Any]:
    return {"id": "front", "sha256": digest_of(KEY), "tenant": "blue", **fields}


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": entries}))
    path.chmod(0o600)
    return path


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    soon, past = ((datetime.now(UTC) + timedelta(days=days)).isoformat() for days in (1, -1))
    keys = write(
        tmp_path / "keys",
        entry(expires=soon),
        entry(id="old", sha256=digest_of("old"), expires=past),
        entry(id="jobs", sha256=digest_of("jobs"), tenant="green", tier="batch", concurrency=1),
    )
    return Keyring(keys)


@pytest_asyncio.fixture(loop_scope="session")
async def locked(tokenizer: Tokenizer, keyring: Keyring) -> Any:
    async with serve_gateway(tokenizer, context_length=2048, keyring=keyring) as gateway:
        yield gateway


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_nobody_passes_without_a_key_that_counts(locked: Gateway) -> None:
    for headers, code in (
        ({}, "missing_api_key"),
        ({"authorization": KEY}, "missing_api_key"),
        ({"authorization": "Basic " + KEY}, "missing_api_key"),
        (bearer("wrong"), "invalid_api_key"),
        (bearer(KEY.upper()), "invalid_api_key"),
        (bearer(digest_of(KEY)), "invalid_api_key"),
        (bearer("old"), "expired_api_key"),
    ):
        response = await locked.client.get("/v1/models", headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, code)


async def test_without_a_key_nothing_tells_what_exists(locked: Gateway) -> None:
    for path in ("/nothing", "/v1/models/tiny", "//livez", "/livez/", "/livez/../v1/models", "/Livez"):
        response = await locked.client.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "missing_api_key"), path


async def test_a_key_opens_what_there_is_and_health_is_open(locked: Gateway) -> None:
    assert (await locked.client.get("/v1/models", headers=bearer(KEY))).status_code == 200
    assert (await locked.client.get("/nothing/here", headers=bearer(KEY))).status_code == 404
    for path in ("/livez", "/readyz", "/health", "/health/progress", "/metrics"):
        assert (await locked.client.get(path)).status_code == 200, path
    assert (await locked.client.post("/livez")).status_code == 405


async def test_the_metrics_page_can_be_closed(tokenizer: Tokenizer, keyring: Keyring) -> None:
    async with serve_gateway(
        tokenizer, context_length=2048, keyring=keyring, protect_metrics=True
    ) as gateway:
        assert (await gateway.client.get("/metrics")).status_code == 401
        assert (await gateway.client.get("/metrics", headers=bearer(KEY))).status_code == 200
        assert (await gateway.client.get("/livez")).status_code == 200


async def _asked(gateway: Gateway, **headers: str) -> Any:
    """The request as it reached the fleet; it stays open."""
    reader, writer = await gateway.raw(TEXT, text(stream=True), headers=headers)
    generation = await gateway.generation(len(gateway.fleet.generations))
    return reader, writer, generation


async def test_the_key_says_whose_request_it_is_and_which_tier(locked: Gateway) -> None:
    for headers, tenant, tier in (
        (bearer(KEY), "blue", "interactive"),
        ({**bearer(KEY), "x-infer-tenant": "blue", "x-infer-tier": "batch"}, "blue", "batch"),
        (bearer("jobs"), "green", "batch"),
    ):
        _, writer, generation = await _asked(locked, **headers)
        assert (generation.spec.tenant, generation.spec.tier) == (tenant, tier)
        say(generation, [], "stop")
        writer.close()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({**bearer(KEY), "x-infer-tenant": "green"}, "tenant_mismatch"),
        ({**bearer("jobs"), "x-infer-tier": "interactive"}, "tier_not_allowed"),
    ],
)
async def test_a_key_is_not_for_more_than_it_says(
    locked: Gateway, headers: dict[str, str], code: str
) -> None:
    response = await locked.post(TEXT, text(), **headers)
    assert (response.status_code, response.json()["error"]["code"]) == (403, code)
    assert not locked.fleet.generations


async def test_a_key_has_so_many_requests_at_once(locked: Gateway) -> None:
    reader, writer, generation = await _asked(locked, **bearer("jobs"))
    response = await locked.post(TEXT, text(), **bearer("jobs"))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.headers["x-request-dropped-reason"] == "key_concurrency"
    say(generation, [], "stop")
    await reader.readuntil(b"[DONE]\n\n")
    _, second_writer, second = await _asked(locked, **bearer("jobs"))
    say(second, [], "stop")
    writer.close()
    second_writer.close()


async def test_guessing_is_slowed_down_and_locks_out_nobody(locked: Gateway) -> None:
    statuses = [
        (await locked.client.get("/v1/models", headers=bearer(f"guess{number}"))).status_code
        for number in range(MOST_FAILURES + 1)
    ]
    assert statuses == [401] * MOST_FAILURES + [429]
    assert (await locked.client.get("/v1/models", headers=bearer(KEY))).status_code == 200


async def test_a_file_that_went_bad_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", entry())
    keyring = Keyring(path)
    write(path, entry(id="other", sha256=digest_of("other")))
    assert keyring.reload()
    assert keyring.find(KEY) is None
    assert keyring.find("other") is not None
    path.chmod(0o644)
    assert not keyring.reload()
    path.unlink()
    assert not keyring.reload()
    assert keyring.find("other") is not None


async def test_a_file_that_cannot_be_used_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="No such file"):
        Keyring(tmp_path / "none")
    path = write(tmp_path / "keys", entry())
    path.chmod(0o640)
    with pytest.raises(KeysError, match="chmod 600"):
        Keyring(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff", "not UTF-8"),
        (b"[[keys]", "not valid TOML"),
        (b"a = " + b"9" * 5_000, "not valid TOML"),
        (b"{", "f: "),
        (b"{" * 100_000, "f: "),
        (b"", "missing required field `keys`"),
        (b'[[keys]]\nid = "A B"', "keys"),
        (json.dumps({"keys": [entry(sha256="00")]}).encode(), "sha256"),
        (json.dumps({"keys": [entry(tier="gold")]}).encode(), "tier"),
        (json.dumps({"keys": [entry(tenant="Ä")]}).encode(), "tenant"),
        (json.dumps({"keys": [entry(key=KEY)]}).encode(), "unknown field `key`"),
        (json.dumps({"keys": [entry(expires="2027-01-01T00:00:00")]}).encode(), "expires"),
        (json.dumps({"keys": [entry(), entry(sha256=digest_of("x"))]}).encode(), "same id"),
        (json.dumps({"keys": [entry(), entry(id="x")]}).encode(), "same sha256"),
    ],
)
async def test_what_is_wrong_in_a_file_is_named(data: bytes, says: str) -> None:
    with pytest.raises(KeysError) as refused:
        parse_keys(data, "f")
    assert says in str(refused.value)
    assert KEY not in str(refused.value)


async def test_a_made_key_works_and_the_file_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    expires = datetime(2040, 1, 1, tzinfo=UTC)
    first = make_key(path, "one", "blue")
    path.write_text(path.read_text() + "# of the night shift\n")
    second = make_key(path, "two", "green", tier="batch", concurrency=4, expires=expires)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "# of the night shift" in path.read_text()
    keyring = Keyring(path)
    one, two = keyring.find(first), keyring.find(second)
    assert one is not None
    assert two is not None
    assert (one.id, one.tenant, one.tier, one.expires) == ("one", "blue", None, None)
    assert (two.id, two.tenant, two.tier) == ("two", "green", "batch")
    assert (two.concurrency, two.expires) == (4, expires)
    assert first not in path.read_text()
    before = path.read_text()
    for key_id, others in (("one", {}), ("Bad", {}), ("three", {"concurrency": 0})):
        with pytest.raises(KeysError):
            make_key(path, key_id, "blue", **others)
    assert path.read_text() == before
