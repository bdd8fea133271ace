# The reason why the compiled path of sends and pulls stops at a frame.
cdef enum Stop:
    STOP_NEXT_FRAME     # nothing stops it: the frame is served
    STOP_DONE           # the rest is not a complete frame
    STOP_UNFRAMEABLE
    STOP_PYTHON           # this frame is for the Python handlers
    STOP_PULL           # this frame is a pull
    STOP_POP            # this frame is a pop
    STOP_ACK            # this frame acknowledges a popped message, or changes its invisible time
    STOP_ALONE          # this frame is not served together with others
    STOP_FULL           # the sends before this frame must be appended first
    STOP_ANSWER_BUFFER            # the answers' buffer is too small for this frame's answer
    STOP_QUEUE          # the topic table does not have this queue yet
    STOP_PARK_QUEUE     # the same for a queue of delayed messages
    STOP_QUEUE_ROOM     # the queue needs its next file
    STOP_SEGMENT        # the log needs its next segment
    STOP_NOTIFY         # this frame is served, and the list of arrivals is full
