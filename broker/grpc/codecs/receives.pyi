from typing import final

from congreve.base.clock import Clock
from congreve.broker.grpc.codecs.call_accounts import CallAccounts
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.codecs.messages import ReceivedMessages

@final
class ReceiveCodec:
    def __init__(
        self,
        reserved: HashedNames,
        ordered: HashedNames,
        received: ReceivedMessages,
        clock: Clock,
        *,
        renewed_ms: int,
        accounts: CallAccounts | None = None,
    ) -> None: ...
