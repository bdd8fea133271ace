"""The name server's settings, as UPDATE_ and GET_NAMESRV_CONFIG see them (NamesrvConfig)."""

from collections.abc import Mapping

import msgspec

from congreve.namesrv.errors import ConfigError


class NamesrvConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """`order_message_enable` puts the queues of ordered topics into their routes."""

    product_env_name: str = "center"
    order_message_enable: bool = False

    def update(self, settings: Mapping[str, str]) -> list[str]:
        """Set fields by their names on the wire; returns the names that are not known.

        Raises ConfigError, and changes nothing, where a value is not what its field asks for.
        """
        fields = {field.encode_name: field for field in msgspec.structs.fields(self)}
        changes = {}
        for name, text in settings.items():
            if name in fields:
                try:
                    value = msgspec.convert(text, fields[name].type, strict=False)
                except msgspec.ValidationError as error:
                    raise ConfigError(f"{name}={text!r}: {error}") from error
                changes[fields[name].name] = value
        for name, value in changes.items():
            setattr(self, name, value)
        return [name for name in settings if name not in fields]


def parse_properties(text: str) -> dict[str, str]:
    """``key=value`` lines; blank ones and comments are passed over."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def format_properties(settings: Mapping[str, object]) -> str:
    """The reverse, sorted by key."""

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return "".join(f"{key}={text(settings[key])}\n" for key in sorted(settings))
