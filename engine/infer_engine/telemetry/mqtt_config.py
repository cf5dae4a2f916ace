"""The broker as the settings name it, with the password and certificates that lie in files."""

from pathlib import Path

from infer_engine.secret_file import read_secret_file
from infer_engine.settings import ServerSettings
from infer_engine.telemetry.mqtt import Broker
from infer_engine.telemetry.mqtt_address import parse_broker


def read_broker(settings: ServerSettings) -> Broker | None:
    """None where no broker is asked for. ValueError or SecretFileError naming the setting that is wrong."""
    if settings.mqtt is None:
        given = {"mqtt_password_file": settings.mqtt_password_file, "mqtt_ca": settings.mqtt_ca}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is given, but mqtt is not")
        return None
    address = parse_broker(settings.mqtt)
    if settings.mqtt_ca is not None and not address.tls:
        raise ValueError("mqtt_ca is given, but the broker is not spoken to over TLS: use mqtts://")
    password = None
    if settings.mqtt_password_file is not None:
        if address.user is None:
            raise ValueError("mqtt_password_file is given, but mqtt names no user: mqtt://USER@HOST")
        password = read_secret_file(Path(settings.mqtt_password_file)).split(b"\n", 1)[0].decode().strip()
    return Broker(
        address=address,
        password=password,
        ca_file=None if settings.mqtt_ca is None else Path(settings.mqtt_ca),
    )
