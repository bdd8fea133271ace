"""Accounts as RocketMQ 5's users with their access lists, and back.

A user is an account, Super an administrator. A policy is an entry of its topicPerms and groupPerms,
and one of all names (`*`) from any address its default permission. (RocketMQ 5: UserConverter,
AclConverter.)
"""

from collections.abc import Iterable, Iterator

import msgspec

from congreve.broker.accounts.accounts import PERM_TEXTS, Kind, Perm
from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.accounts.files import ANY, AT
from congreve.broker.errors import ConfigError
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.admin_bodies import DISABLED, PlainAccessConfig
from congreve.remoting.messages.users import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

SUBJECT = "User:"
SUPER, NORMAL = "Super", "Normal"
ENABLE = "enable"
ALLOW, DENY = "Allow", "Deny"
CUSTOM = "Custom"
_ACTIONS = {"pub": Perm.PUB, "sub": Perm.SUB, "all": Perm.PUB | Perm.SUB}
_LISTS = {Kind.TOPIC: "topic_perms", Kind.GROUP: "group_perms"}
_DEFAULTS = {Kind.TOPIC: "default_topic_perm", Kind.GROUP: "default_group_perm"}


def name_of(subject: str) -> str:
    """The user of a subject. Raises ConfigError."""
    kind, _, name = subject.partition(":")
    if kind.lower() != "user" or not name.strip():
        raise ConfigError(f"{subject!r} is not a subject: use User:NAME")
    return name.strip()


# --- users


def user_of(config: PlainAccessConfig) -> UserInfo:
    """An account as a user, without its secret."""
    return UserInfo(
        username=config.access_key,
        user_type=SUPER if config.admin else NORMAL,
        user_status=config.status or ENABLE,
    )


def new_user(wanted: UserInfo) -> PlainAccessConfig:
    """A user as an account. Raises ConfigError."""
    if not (wanted.password or "").strip():
        raise ConfigError("password can not be blank")
    return changed_user(PlainAccessConfig(access_key=wanted.username or ""), wanted)


def changed_user(config: PlainAccessConfig, wanted: UserInfo) -> PlainAccessConfig:
    """The account after what is set in `wanted`. Raises ConfigError."""
    found = msgspec.structs.replace(config)
    if (wanted.password or "").strip():
        found.secret_key = wanted.password
    if wanted.user_type:
        kind = wanted.user_type.capitalize()
        if kind not in (SUPER, NORMAL):
            raise ConfigError(f"userType {wanted.user_type!r}: use {SUPER} or {NORMAL}")
        found.admin = kind == SUPER
    if wanted.user_status:
        status = wanted.user_status.lower()
        if status not in (ENABLE, DISABLED):
            raise ConfigError(f"userStatus {wanted.user_status!r}: use {ENABLE} or {DISABLED}")
        found.status = status if status == DISABLED else None
    return found


# --- access lists


def acl_of(config: PlainAccessConfig, resource_filter: str = "") -> AclInfo | None:
    """The permissions of an account, for resources with a text in them; None without any."""
    entries = [each for each in _entries(config) if resource_filter in each.resource]
    if not entries:
        return None
    policy = PolicyInfo(policy_type=CUSTOM, entries=entries)
    return AclInfo(subject=SUBJECT + config.access_key, policies=[policy])


def with_policies(config: PlainAccessConfig, policies: Iterable[PolicyInfo]) -> PlainAccessConfig:
    """The account with further permissions, which replace those of the same resources.

    Raises ConfigError for what accounts cannot say.
    """
    entries = [entry for policy in policies for entry in policy.entries]
    if not entries:
        raise ConfigError("The policies is empty.")
    for entry in entries:
        for kind, name in _resources(entry.resource):
            config = _with_perm(config, kind, name, _perm_text(entry))
    return config


def without_resource(config: PlainAccessConfig, resource: str | None) -> PlainAccessConfig:
    """The account without its permissions for a resource; None: without any. Raises ConfigError."""
    if resource is None:
        names = (*_LISTS.values(), *_DEFAULTS.values())
        return msgspec.structs.replace(config, **dict.fromkeys(names))
    for kind, name in _resources(resource):
        config = _with_perm(config, kind, name, None)
    return config


def _entries(config: PlainAccessConfig) -> Iterator[PolicyEntryInfo]:
    for kind, name in _DEFAULTS.items():
        text = getattr(config, name)
        if text is not None:
            yield _entry(f"{kind.value.capitalize()}:{ANY}", text)
    for kind, name in _LISTS.items():
        for each in getattr(config, name) or ():
            of, _, text = (part.strip() for part in each.partition("="))
            if of.startswith(RETRY_PREFIX):
                yield _entry(f"Group:{of.removeprefix(RETRY_PREFIX)}", text)
            else:
                yield _entry(f"{kind.value.capitalize()}:{of}", text)


def _entry(resource: str, text: str) -> PolicyEntryInfo:
    text, _, sources = text.partition(AT)
    granted = PERM_TEXTS.get(text.strip(), Perm.DENY).granted
    actions = [name.capitalize() for name in ("pub", "sub") if granted & _ACTIONS[name]]
    decision = ALLOW if granted else DENY
    return PolicyEntryInfo(
        resource=resource,
        actions=actions or ["All"],
        source_ips=[each.strip() for each in sources.split(",")] if sources else None,
        decision=decision,
    )


def _resources(text: str) -> list[tuple[Kind, str]]:
    if text == ANY:
        return [(Kind.TOPIC, ANY), (Kind.GROUP, ANY)]
    kind, _, name = text.partition(":")
    found = next((each for each in Kind if each.value == kind.lower()), None)
    name = name.strip()
    if found is None or not name or ANY in name[:-1] or "=" in name:
        raise ConfigError(
            f"resource {text!r}: accounts have permissions for Topic:NAME and Group:NAME, with "
            "NAME* for all names that begin so, for Topic:* and Group:*, and for *"
        )
    return [(found, name)]


def _perm_text(entry: PolicyEntryInfo) -> str:
    """How the file writes an entry. Raises ConfigError."""
    sources = ",".join(entry.source_ips or ())
    AddressPattern.parse(sources)
    wanted = Perm(0)
    for action in entry.actions:
        perm = _ACTIONS.get(action.strip().lower())
        if perm is None:
            raise ConfigError(
                f"action {action!r}: use Pub, Sub or All; other requests need the user type {SUPER}"
            )
        wanted |= perm
    decision = entry.decision.capitalize()
    if not wanted or decision not in (ALLOW, DENY):
        raise ConfigError(f"{entry.resource}: it needs an action, and the decision Allow or Deny")
    if decision == DENY and wanted != Perm.PUB | Perm.SUB:
        raise ConfigError(f"{entry.resource}: deny All, and allow what is allowed")
    if decision == DENY:
        wanted = Perm.DENY
    text = next(text for text, perm in PERM_TEXTS.items() if perm == wanted)
    return text + AT * bool(sources) + sources


def _with_perm(
    config: PlainAccessConfig, kind: Kind, name: str, text: str | None
) -> PlainAccessConfig:
    field = _LISTS[kind]
    default = getattr(config, _DEFAULTS[kind])
    kept = [each for each in getattr(config, field) or () if each.partition("=")[0].strip() != name]
    if name == ANY and AT not in (text or ""):
        default = text
    elif text is not None:
        default = None if name == ANY else default
        kept.append(f"{name}={text}")
    return msgspec.structs.replace(config, **{field: kept or None, _DEFAULTS[kind]: default})
