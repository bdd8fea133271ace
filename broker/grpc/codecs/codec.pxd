from congreve.broker.grpc.codecs.receives cimport ReceiveCodec
from congreve.broker.grpc.codecs.sends cimport SendCodec
from congreve.broker.grpc.codecs.settles cimport SettleCodec
from congreve.remoting.lanes.http2 cimport CallCodec

# What is answered.
cdef enum CallKind:
    SEND
    ACK
    CHANGE
    RECEIVE


cdef class GrpcCodec(CallCodec):
    cdef SendCodec sends
    cdef SettleCodec settles
    cdef ReceiveCodec receives  # None: the loop has them
