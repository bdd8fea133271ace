"""Codes of remoting as those of gRPC clients (RocketMQ 5: ResponseBuilder).

Where RocketMQ's proxy answers INTERNAL_SERVER_ERROR for what a client could understand, this table
is more exact: a code says whether to send again.
"""

import enum


class Code(enum.IntEnum):
    """definition.proto's Code."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402


cpdef int32_t code_of(int32_t remoting) noexcept nogil:
    """The Code for a code of remoting."""
    if remoting == 0:
        return OK
    if remoting == 2 or remoting == 215:        # SYSTEM_BUSY, FLOW_CONTROL
        return TOO_MANY_REQUESTS
    if remoting == 3:                           # REQUEST_CODE_NOT_SUPPORTED
        return NOT_IMPLEMENTED
    if remoting == 10:                          # FLUSH_DISK_TIMEOUT
        return MASTER_PERSISTENCE_TIMEOUT
    if remoting == 11 or remoting == 14:        # SLAVE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE
        return HA_NOT_AVAILABLE
    if remoting == 12:                          # FLUSH_SLAVE_TIMEOUT
        return SLAVE_PERSISTENCE_TIMEOUT
    if remoting == 13:                          # MESSAGE_ILLEGAL
        return MESSAGE_CORRUPTED
    if remoting == 16:                          # NO_PERMISSION
        return FORBIDDEN
    if remoting == 17:                          # TOPIC_NOT_EXIST
        return TOPIC_NOT_FOUND
    if remoting == 23:                          # SUBSCRIPTION_PARSE_FAILED
        return ILLEGAL_FILTER_EXPRESSION
    if remoting == 26:                          # SUBSCRIPTION_GROUP_NOT_EXIST
        return CONSUMER_GROUP_NOT_FOUND
    if remoting == 2017:                        # LMQ_QUOTA_EXCEEDED
        return LITE_TOPIC_QUOTA_EXCEEDED
    if remoting == 2300:                        # MESSAGE_TYPE_CONFLICT
        return MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    return INTERNAL_SERVER_ERROR


cpdef int32_t code_of_settling(int32_t remoting) noexcept nogil:
    """The same for the answer to an acknowledgement, or to a change of the invisible time: clients
    repeat without end what was refused with another code than INVALID_RECEIPT_HANDLE.
    """
    # MESSAGE_ILLEGAL, NO_MESSAGE, TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST
    if remoting == 13 or remoting == 208 or remoting == 17 or remoting == 26:
        return INVALID_RECEIPT_HANDLE
    return code_of(remoting)
