import pytest
from infer_engine.foreign.address import parse_address
from infer_engine.settings import ServerSettings, SettingsError, Upstream, validate


def test_an_address_is_a_kind_and_a_place() -> None:
    address = parse_address("vllm+https://host.example/base/")
    assert (address.kind, address.base_url) == ("vllm", "https://host.example:443/base")
    assert parse_address("auto+http://[::1]:80").place == "::1:80"
    assert not parse_address("sglang+http://10.0.0.1:1").is_secret_safe


@pytest.mark.parametrize(
    "url",
    [
        "http://a:1",
        "tgi+http://a:1",
        "vllm+ftp://a",
        "vllm+http://",
        "vllm+http://a:99999",
        "vllm+http://a b",
        "",
        "vllm+http://a?x=1",
        "vllm+http://a/\n",
        "vllm+http://a" * 90,
    ],
)
def test_what_is_no_address_is_refused_with_what_is(url: str) -> None:
    with pytest.raises(ValueError, match="KIND"):
        parse_address(url)


def test_a_key_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="INFER_UPSTREAM_TOKEN") as error:
        parse_address("vllm+http://me:hunter2@a:1")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"upstreams": ["vllm+http://a:1", "auto+http://a:1"]}, "named twice"),
        ({"upstreams": ["vllm+http://localhost:1", "auto+http://127.0.0.1:1"]}, "named twice"),
        ({"upstreams": ["vllm+http://a:1"], "simulate": "llama-8b@1xh100"}, "one or the other"),
        ({"upstreams": ["vllm+http://a:1"], "launcher": "local"}, "launched by nobody"),
        ({"upstreams": ["vllm+http://a:1"], "replicas": 7}, "as many as are named, and own_replicas"),
        ({"own_replicas": 1}, "beside upstreams"),
        ({"upstreams": ["vllm+http://a:1"], "own_replicas": 65}, "own_replicas"),
        ({"upstreams": ["http://a:1"]}, "KIND"),
        ({"upstreams": [{"url": "vllm+http://a:1", "token_env": "A", "token_file": "b"}]}, "one of them"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        validate(ServerSettings, values)


def test_the_first_replicas_are_the_upstreams() -> None:
    settings = validate(ServerSettings, {"upstreams": ["vllm+http://a:1"], "own_replicas": 2})
    assert [settings.launcher_of(each) for each in ("r0", "r1", "r2")] == ["upstream", "local", "local"]


def test_an_upstream_with_a_key_of_its_own_is_a_table() -> None:
    settings = validate(ServerSettings, {"upstreams": [{"url": "vllm+http://a:1", "token_env": "A_KEY"}]})
    assert settings.upstreams == (Upstream(url="vllm+http://a:1", token_env="A_KEY"),)
    assert settings.upstream_urls == ["vllm+http://a:1"]
