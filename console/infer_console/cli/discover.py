"""discover: servers on this machine, fleets that a broker knows of, servers behind a DNS name."""

import asyncio
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infer_console.cli import codes
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from infer_console.discovery.found import Found

HOST = "host"
MQTT = ("mqtt://", "mqtts://")
DNS = "dns+"


def _discover(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json
    from infer_console.discovery.broker import parse_broker_url
    from infer_console.discovery.found import DiscoverError
    from infer_console.discovery.others import parse_name

    places: list[str] = list(dict.fromkeys(arguments.places)) or [HOST]
    try:
        for place in places:
            if place != HOST:
                if place.startswith(DNS):
                    parse_name(place)
                    continue
                if not place.startswith(MQTT):
                    raise DiscoverError(
                        f"{place!a} was given, allowed are: {HOST}, mqtt://BROKER[/FLEET],"
                        " dns+vllm://NAME:PORT"
                    )
                parse_broker_url(place)
        password = _password(arguments.mqtt_password_file)
    except (DiscoverError, OSError) as error:
        complain(f"discover: {error}")
        return codes.USAGE
    found, failed = asyncio.run(_find(places, password, arguments.mqtt_ca))
    for why in failed:
        complain(f"discover: {why}")
    if arguments.json:
        print_json({"version": 1, "found": found})
    else:
        _print(found)
    if not failed:
        return codes.OK
    return codes.UNREACHABLE if len(failed) == len(places) else codes.PARTIAL


async def _find(
    places: list[str], password: str | None, ca_file: str | None
) -> "tuple[list[Found], list[str]]":
    """What was found, place by place, and why the others cannot be searched."""
    from infer_console.discovery.broker import find_at_broker, parse_broker_url
    from infer_console.discovery.found import DiscoverError
    from infer_console.discovery.host import PROC, find_on_host
    from infer_console.discovery.others import find_behind_name, find_others_on_host

    found: list[Found] = []
    failed: list[str] = []
    for place in places:
        try:
            if place == HOST:
                ours = await find_on_host()
                # A gateway of ours tells its metrics under vLLM's names too.
                gateways = {_port(each.gateway) for each in ours if each.gateway}
                others = await find_others_on_host(PROC)
                found += ours
                found += [each for each in others if _port(each.gateway) not in gateways]
            elif place.startswith(DNS):
                found += await find_behind_name(place)
            else:
                found += await find_at_broker(parse_broker_url(place), password=password, ca_file=ca_file)
        except DiscoverError as error:
            failed.append(str(error))
    return found, failed


def _port(url: str | None) -> int | None:
    """None for what is no URL: whoever was found says it."""
    try:
        return urlsplit(url or "").port
    except ValueError:
        return None


def _password(file: str | None) -> str | None:
    """Its first line, of a file that nobody else may read."""
    from infer_console.credentials import CredentialError, read_token
    from infer_console.discovery.found import DiscoverError

    try:
        return read_token(token_file=file, token_env=None, environ={})
    except CredentialError as error:
        raise DiscoverError(f"--mqtt-password-file: {error}") from error


def _print(found: "list[Found]") -> None:
    from infer_console.cli.output import note, print_table

    if not found:
        note("no server was found; infer-console serve starts one")
        return
    rows = [
        (
            each.state,
            each.name or "–",
            each.model or "–",
            "–" if each.ready is None else f"{each.ready}/{each.replicas}",
            "yes" if each.simulated else "–" if each.simulated is None else "no",
            each.url or "–",
            each.gateway or "–",
            each.where,
        )
        for each in found
    ]
    print_table(("STATE", "NAME", "MODEL", "READY>", "SIMULATED", "CONNECT", "GATEWAY", "FOUND BY"), rows)
    for each in found:
        if each.why:
            note(f"{each.url or each.where}: {each.why}")


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "places",
        nargs="*",
        metavar="PLACE",
        help="host (this machine, the default), mqtt[s]://[USER@]BROKER[:PORT][/FLEET], or dns+vllm://NAME:PORT"
        " (dns+sglang, dns+llamacpp) for every address behind a name",
    )
    parser.add_argument("--mqtt-password-file", metavar="FILE", help="the password at the broker")
    parser.add_argument("--mqtt-ca", metavar="FILE", help="the only certificates that it may show (PEM)")
    json_option(parser)


VERBS = (
    Verb(
        name="discover",
        help="list the servers on this machine (vLLM, SGLang and llama.cpp too), or those that an MQTT broker"
        " or a DNS name knows of",
        arguments=_arguments,
        run=_discover,
        connects=False,
    ),
)
