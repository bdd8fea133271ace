"""Accounts over the network (RocketMQ: AdminBrokerProcessor)."""

import json
from collections.abc import Callable, Mapping

import msgspec

from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError, RefusedError
from congreve.engine.errors import StoreError
from congreve.remoting.messages.admin_bodies import PlainAccessConfig
from congreve.remoting.messages.admin_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from congreve.remoting.messages.bodies import DataVersion
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class AccountAdminProcessor:
    """Creates, changes, deletes and lists accounts; `access` is None with aclEnable=false.

    (RocketMQ: AdminBrokerProcessor.)
    """

    def __init__(self, config: BrokerConfig, access: AccessControl | None) -> None:
        self._config = config
        self._access = access

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
        }

    async def update(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Create an account, or change one (UPDATE_AND_CREATE_ACL_CONFIG)."""
        header = CreateAccessConfigRequestHeader.read(request)
        wanted = PlainAccessConfig(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_listed(header.topic_perms),
            group_perms=_listed(header.group_perms),
        )
        code = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        return await self._edit(request, code, lambda files: files.update(wanted))

    async def delete(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Delete an account (DELETE_ACL_CONFIG)."""
        key = DeleteAccessConfigRequestHeader.read(request).access_key
        code = ResponseCode.DELETE_ACL_CONFIG_FAILED
        return await self._edit(request, code, lambda files: files.delete(key))

    async def set_white_addresses(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Replace the global white addresses of a file (UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader.read(request)
        patterns, path = _listed(header.global_white_addrs), header.acl_file_full_path
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        return await self._edit(
            request, code, lambda files: files.set_white_addresses(patterns, path)
        )

    def get_versions(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The data version of each file (GET_BROKER_CLUSTER_ACL_INFO)."""
        files = self._on(ResponseCode.SYSTEM_ERROR).files
        versions = {path: msgspec.to_builtins(each) for path, each in files.versions.items()}
        default = files.versions.get(files.default_path, DataVersion())
        header = GetBrokerAclConfigResponseHeader(
            version=default.encode().decode(),
            broker_name=self._config.broker_name,
            broker_addr=self._config.address,
            cluster_name=self._config.broker_cluster_name,
            all_acl_file_version=json.dumps(versions),
        )
        return request.reply(ResponseCode.SUCCESS, ext_fields=header.fields())

    def get_accounts(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All accounts without their secrets (GET_BROKER_CLUSTER_ACL_CONFIG)."""
        body = self._on(ResponseCode.SYSTEM_ERROR).files.without_secrets().encode()
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def _edit(
        self, request: RemotingCommand, failed: ResponseCode, change: Callable[[AccountFiles], None]
    ) -> RemotingCommand:
        try:
            await self._on(failed).edit(change)
        except (ConfigError, StoreError) as error:
            raise RefusedError(failed, str(error)) from error
        return request.reply(ResponseCode.SUCCESS)

    def _on(self, code: ResponseCode) -> AccessControl:
        if self._access is None:
            raise RefusedError(code, "this broker has no accounts: it runs with aclEnable=false")
        return self._access


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
