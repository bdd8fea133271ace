"""Accounts of brokers and their permissions."""

import secrets

from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.client.errors import BrokerError, InvalidSettingError
from congreve.console.web.pages import Visit
from congreve.remoting.messages.admin_bodies import AclConfig
from congreve.remoting.messages.admin_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from congreve.remoting.messages.codes import RequestCode

PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
SECRET_MIN = 7
SECRET_BYTES = 24


async def accounts(visit: Visit) -> Response:
    """The accounts of each broker, without secrets."""
    found: dict[str, AclConfig] = {}
    errors: dict[str, str] = {}
    for name, reports in (await visit.cluster.masters()).items():
        try:
            found[name] = await reports.accounts()
        except CongreveError as error:
            remark = error.remark if isinstance(error, BrokerError) else None
            errors[name] = remark or str(error)
    edited = visit.query("edit")
    account = next(
        (
            each
            for config in found.values()
            for each in config.plain_access_configs
            if each.access_key == edited
        ),
        None,
    )
    return visit.page(
        "accounts/accounts.html",
        brokers=found,
        errors=errors,
        edited=account,
        permissions=PERMISSIONS,
    )


async def save_account(visit: Visit) -> Response:
    """Create or change an account on all brokers; a new secret is shown once."""
    key = visit.field("access_key")
    if len(key) < SECRET_MIN or not key.isprintable():
        raise InvalidSettingError(f"access key {key[:40]!r}: {SECRET_MIN} characters or more")
    secret = visit.field("secret_key")
    is_new = visit.field("new") == "1"
    if is_new and not secret:
        secret = secrets.token_urlsafe(SECRET_BYTES)
    if secret and len(secret) < SECRET_MIN:
        raise InvalidSettingError(f"the secret is too short: {SECRET_MIN} characters or more")
    header = CreateAccessConfigRequestHeader(
        access_key=key,
        secret_key=secret or None,
        white_remote_address=visit.field("white_remote_address") or None,
        admin=visit.field("admin") == "on",
        default_topic_perm=_permission(visit, "default_topic_perm"),
        default_group_perm=_permission(visit, "default_group_perm"),
        topic_perms=_rows(visit, "topic_perms"),
        group_perms=_rows(visit, "group_perms"),
    )
    await _on_all(visit, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header.fields())
    if not is_new:
        return visit.done("changed account", key, "/accounts")
    visit.audit.note(visit, "created account", key)
    return visit.page("accounts/new_account.html", access_key=key, secret_key=secret)


async def delete_account(visit: Visit) -> Response:
    """Delete an account on all brokers."""
    key = visit.field("access_key")
    if visit.field("confirm") != key:
        raise InvalidSettingError(f"type the access key, {key}, to delete the account")
    fields = DeleteAccessConfigRequestHeader(access_key=key).fields()
    await _on_all(visit, RequestCode.DELETE_ACL_CONFIG, fields)
    return visit.done("deleted account", key, "/accounts")


async def save_addresses(visit: Visit) -> Response:
    """Change the addresses that need no account."""
    addresses = ",".join(_words(visit.field("addresses")))
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs=addresses)
    await _on_all(visit, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header.fields())
    return visit.done("changed white addresses", addresses or "none", "/accounts")


async def _on_all(visit: Visit, code: RequestCode, fields: dict[str, str]) -> None:
    for reports in (await visit.cluster.masters()).values():
        await visit.cluster.admin.demand(reports.address, code, fields)


def _permission(visit: Visit, field: str) -> str:
    text = visit.field(field, PERMISSIONS[0])
    if text not in PERMISSIONS:
        raise InvalidSettingError(f"permission {text[:20]!r}: use one of {', '.join(PERMISSIONS)}")
    return text


def _rows(visit: Visit, field: str) -> str:
    """`name=PERM` of each line, with commas between. Raises InvalidSettingError."""
    rows = _words(visit.field(field))
    for row in rows:
        name, equals, perm = row.partition("=")
        if not name or not equals or perm not in PERMISSIONS:
            raise InvalidSettingError(f"{row[:100]!r}: write name=PUB, SUB, PUB|SUB or DENY")
    return ",".join(rows)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()
