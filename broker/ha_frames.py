"""The stream on the HA port (RocketMQ: HAConnection, HAService.HAClient), in big endian.

slave -> master   between brokers with accounts first: i64 LOGIN, i32 0: it asks for a challenge
master -> slave   i64 CHALLENGE, i32 size, a challenge (login.py); 0: no login is needed
slave -> master   i64 LOGIN, i32 size, a login
slave -> master   i64 physical offset: where to begin, then how far the slave has come
master -> slave   i64 physical offset, i32 size, then `size` bytes of the log; 0: a heartbeat

On a second connection, between brokers of ours, either end asks the other for records:

slave -> master   i64 REPAIR, a login as above, i64 REPAIR again
master -> slave   i64 REPAIR, i32 version; then as in broker/repair/frames.py

For each connection of a client to a member that was the master of an elected group:

slave -> master   i64 REPAIR, a login as above, i64 HAND_OVER, the client's address: u8 4 or 16,
                  16 bytes that begin with it, u16 port
master -> slave   i64 HAND_OVER, i32 version; then the client's requests, and the answers to them
"""

from struct import Struct

HEADER = Struct(">qi")
"""The header of a frame: the physical offset of its bytes, and their number."""
REPORT = Struct(">q")
"""A slave's report: the physical offset up to which it has the log."""
FRAME_MAX = 4 << 20
"""Most bytes of a frame; a RocketMQ slave's buffer holds no larger one."""
EMPTY_LOG = 0
"""The report of a slave that has no log yet."""
LOGIN = -0x434F4E4752455645
"""In place of a slave's first report: it logs in. No offset is negative."""
LOGIN_HEAD = Struct(">qi")
"""LOGIN, and the number of bytes that follow."""
ASK = LOGIN_HEAD.pack(LOGIN, 0)
"""A slave asks for a challenge."""
CHALLENGE = -0x4348414C4C454E47
"""In place of an offset, too: what a slave has to sign."""
LOGIN_MAX = 1024
"""Most bytes of a login or a challenge."""
_REPAIR = -0x4C4F475245504149
REPAIR = REPORT.pack(_REPAIR)
"""A slave's first bytes on a connection for repairs; an earlier version closes it."""
REPAIR_ACCEPTED = HEADER.pack(_REPAIR, 1)
"""A master's answer."""
_HAND_OVER = -0x48414E444F564552
HAND_OVER = REPORT.pack(_HAND_OVER)
"""In place of the second REPAIR: a client's requests will follow."""
HAND_OVER_ACCEPTED = HEADER.pack(_HAND_OVER, 1)
"""A master's answer."""
CLIENT = Struct(">B16sH")
"""The address of a client, behind HAND_OVER."""
