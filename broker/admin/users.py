"""Users and their access lists over the network (RocketMQ 5: AdminBrokerProcessor)."""

from collections.abc import Callable, Mapping

from congreve.broker.accounts import users
from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.admin.accounts import AccountAdminProcessor
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError, RefusedError
from congreve.engine.errors import StoreError
from congreve.remoting.messages.admin_bodies import PlainAccessConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.users import (
    AclInfo,
    AclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserInfo,
    UserRequestHeader,
    encode_list,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class UserAdminProcessor:
    """Accounts as mqadmin 5 manages them; `access` is None with aclEnable=false.

    (RocketMQ 5: AdminBrokerProcessor.)
    """

    def __init__(self, access: AccessControl | None) -> None:
        self._access = access

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.update_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # --- users

    async def create_user(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Add an account (AUTH_CREATE_USER)."""
        wanted = _user(request)

        def create(config: PlainAccessConfig | None) -> PlainAccessConfig:
            if config is not None:
                raise ConfigError("The user is existed")
            return users.new_user(wanted)

        return await self._edit(request, wanted.username or "", create)

    async def update_user(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Change an account's secret, kind or status (AUTH_UPDATE_USER)."""
        wanted = _user(request)
        return await self._edit(
            request,
            wanted.username or "",
            lambda config: users.changed_user(_known(config, "The user is not exist"), wanted),
        )

    async def delete_user(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Remove an account with its permissions; none is no error (AUTH_DELETE_USER)."""
        name = _name(UserRequestHeader.read(request))
        return await self._edit(request, name, lambda _: None)

    def get_user(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """One account, without its secret (AUTH_GET_USER)."""
        found = self._configs().get(_name(UserRequestHeader.read(request)))
        body = b"" if found is None else users.user_of(found).encode()
        return request.reply(ResponseCode.SUCCESS, body=body)

    def list_users(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All accounts, without their secrets (AUTH_LIST_USER)."""
        wanted = ListUsersRequestHeader.read(request).filter
        found = (users.user_of(each) for name, each in self._configs().items() if wanted in name)
        return request.reply(ResponseCode.SUCCESS, body=encode_list(found))

    # --- access lists

    async def update_acl(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Give an account permissions (AUTH_CREATE_ACL, AUTH_UPDATE_ACL)."""
        header = AclRequestHeader.read(request)
        subject = header.subject
        policies = AclInfo.decode(request.body).policies
        return await self._edit(
            request,
            _subject(subject),
            lambda config: users.with_policies(
                _known(config, f"The subject of {subject} is not exist."), policies
            ),
        )

    async def delete_acl(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Take the permissions for one resource from an account, or all (AUTH_DELETE_ACL)."""
        header = AclRequestHeader.read(request)
        return await self._edit(
            request,
            _subject(header.subject),
            lambda config: users.without_resource(
                _known(config, "The subject is not exist."), header.resource or None
            ),
        )

    def get_acl(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The permissions of an account (AUTH_GET_ACL)."""
        name = _subject(AclRequestHeader.read(request).subject)
        try:
            found = users.acl_of(_known(self._configs().get(name), "The subject is not exist."))
        except ConfigError as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        return request.reply(ResponseCode.SUCCESS, body=b"" if found is None else found.encode())

    def list_acls(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The permissions of all accounts (AUTH_LIST_ACL)."""
        header = ListAclsRequestHeader.read(request)
        found = [
            users.acl_of(config, header.resource_filter)
            for name, config in self._configs().items()
            if header.subject_filter in users.SUBJECT + name
        ]
        return request.reply(ResponseCode.SUCCESS, body=encode_list(filter(None, found)))

    # --- the files

    def _configs(self) -> dict[str, PlainAccessConfig]:
        shown = self._on().files.without_secrets().plain_access_configs
        return {each.access_key: each for each in shown}

    async def _edit(
        self,
        request: RemotingCommand,
        name: str,
        change: Callable[[PlainAccessConfig | None], PlainAccessConfig | None],
    ) -> RemotingCommand:
        try:
            await self._on().edit(lambda files: files.change(name, change))
        except (ConfigError, StoreError) as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        return request.reply(ResponseCode.SUCCESS)

    def _on(self) -> AccessControl:
        if self._access is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "this broker has no accounts: it runs with aclEnable=false",
            )
        return self._access


def account_processors(
    config: BrokerConfig, access: AccessControl | None
) -> tuple[AccountAdminProcessor, UserAdminProcessor]:
    """Those of RocketMQ 4's and of RocketMQ 5's requests about accounts."""
    return AccountAdminProcessor(config, access), UserAdminProcessor(access)


def _name(header: UserRequestHeader) -> str:
    if not header.username.strip():
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return header.username


def _user(request: RemotingCommand) -> UserInfo:
    found = UserInfo.decode(request.body)
    found.username = _name(UserRequestHeader.read(request))
    return found


def _subject(subject: str) -> str:
    try:
        return users.name_of(subject)
    except ConfigError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error


def _known(config: PlainAccessConfig | None, refusal: str) -> PlainAccessConfig:
    if config is None:
        raise ConfigError(refusal)
    return config
