# The parts of topics.py that compiled code needs; tests/records/message compares the two.

cdef extern from *:
    """
    #define CONGREVE_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"
    #define CONGREVE_TIMER_TOPIC "rmq_sys_wheel_timer"
    #define CONGREVE_UNDELIVERABLE_TOPIC "rmq_sys_undeliverable_messages"
    #define CONGREVE_TRANS_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
    #define CONGREVE_TRANS_OP_HALF_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    #define CONGREVE_RETRY_PREFIX "%RETRY%"
    #define CONGREVE_DLQ_PREFIX "%DLQ%"
    #define CONGREVE_SYSTEM_TOPIC_PREFIX "rmq_sys_"
    #define CONGREVE_SYSTEM_GROUP_PREFIX "CID_RMQ_SYS_"
    """
    const char *SCHEDULE_TOPIC "CONGREVE_SCHEDULE_TOPIC"
    const char *TIMER_TOPIC "CONGREVE_TIMER_TOPIC"
    const char *UNDELIVERABLE_TOPIC "CONGREVE_UNDELIVERABLE_TOPIC"
    const char *TRANS_HALF_TOPIC "CONGREVE_TRANS_HALF_TOPIC"
    const char *TRANS_OP_HALF_TOPIC "CONGREVE_TRANS_OP_HALF_TOPIC"
    const char *RETRY_PREFIX "CONGREVE_RETRY_PREFIX"
    const char *DLQ_PREFIX "CONGREVE_DLQ_PREFIX"
    const char *SYSTEM_TOPIC_PREFIX "CONGREVE_SYSTEM_TOPIC_PREFIX"
    const char *SYSTEM_GROUP_PREFIX "CONGREVE_SYSTEM_GROUP_PREFIX"

cdef enum:
    TIMER_QUEUE_ID = 0          # the one queue of the timer topic
    TRANS_QUEUE_ID = 0          # the one queue of each topic of transactions
