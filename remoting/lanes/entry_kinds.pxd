# The kinds of mailbox entries between a lane and the event loop; handle.pyx documents them.
cdef enum EntryToLoop:
    OPENED
    FRAME
    CLOSED
    UNWRITABLE
    WRITABLE
    UNFRAMEABLE
    CUT_LATE
    CUT_LARGE
    CUT_SILENT
    CUT_HANDSHAKE
    CUT_PLAIN
    HANDED_OVER
    FENCED
    CALL
    CALL_CLOSED
    CALL_ENDED
    CALL_ANSWERED
    OF_SINK             # and all higher numbers

cdef enum EntryToLane:
    WRITE
    CLOSE
    ABORT
    PAUSE
    RESUME
    HANDLED
    NOTIFY_WRITABLE
    REPLY
    ROOM                # the loop's mailbox has room again
    FENCE
    STOP_LISTENING
    ADOPT
    STOP
    TO_SINK             # and all higher numbers
