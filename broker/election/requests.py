"""Lines of the audit log about operators' requests for a master."""

import json
import logging
from typing import Any

from congreve.broker.config import BrokerConfig
from congreve.broker.election.coordinator import Claim, ElectRequest

# The daemons write this log without the limit for repeated lines.
logger = logging.getLogger("congreve.broker.accounts.audit")


def note_replacement(config: BrokerConfig, member: int, claim: Claim) -> None:
    """Write one JSON line for a number that another store got at an operator's request."""
    line = {
        "request": "REPLACE_MEMBER",
        "by": claim.by,
        "group": config.broker_name,
        "wanted": member,
        "store": claim.store,
        "member": config.broker_id,
        "outcome": "given",
    }
    logger.info("%s", json.dumps(line))


def note_request(config: BrokerConfig, request: ElectRequest | None, outcome: str) -> None:
    """Write one JSON line for what this member did at an operator's request; none without one."""
    if request is None:
        return
    line: dict[str, Any] = {
        "request": "ELECT_MASTER",
        "by": request.by,
        "group": config.broker_name,
        "wanted": request.member,
        "unclean": request.unclean,
        "member": config.broker_id,
        "outcome": outcome,
    }
    logger.info("%s", json.dumps(line))
