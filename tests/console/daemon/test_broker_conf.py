"""The settings of a broker, from its file, options and the environment."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from congreve.console.daemon.broker_conf import config_options, read_config
from congreve.console.option_types import Pairs

FILE, ENVIRONMENT, OPTION = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


@click.command()
@config_options
def shown(config_file: Path | None, namesrv_addr: str | None, settings: Pairs) -> None:
    click.echo(read_config(config_file, namesrv_addr, settings).namesrv_addr)


@pytest.mark.parametrize(
    ("text", "arguments", "used"),
    [
        (f"namesrvAddr={FILE}\n", (), FILE),
        (f"namesrvAddr={FILE}\n", ("-n", OPTION), OPTION),
        ("", ("-o", f"namesrvAddr={OPTION}"), OPTION),
        ("", ("-n", OPTION), OPTION),
        ("", (), ENVIRONMENT),
    ],
)
def test_name_servers_of_the_environment_do_not_override_the_file(
    tmp_path: Path, text: str, arguments: tuple[str, ...], used: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    environment = {"NAMESRV_ADDR": ENVIRONMENT}
    done = CliRunner().invoke(shown, ["-c", str(conf), *arguments], env=environment)
    assert done.output.strip() == used
