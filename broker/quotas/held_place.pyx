"""The places of waiting pulls, for Python callers: lanes call hold() themselves."""

cimport cython

from congreve.broker.quotas.quota_table cimport KINDS, Charged, QuotaEntry, QuotaTable, charged


@cython.final
cdef class HeldPlace:
    """A waiting pull's place in quotas, which is free again when nothing refers to the object.

    (RocketMQ: none.)
    """

    cdef QuotaTable table
    cdef QuotaEntry *places[KINDS]

    def __dealloc__(self):
        if self.table is not None:
            self.table.release_place(self.places)


def take_place(QuotaTable table not None, tuple names not None, *, bint counts):
    """A place for names (topic, group, account, address), each bytes or None.

    None: there is none; with `counts` this is a pull that the quota has limited.
    """
    cdef Charged payers = charged(names)
    cdef HeldPlace place = HeldPlace()
    if not table.hold(&payers, place.places, counts):
        return None
    place.table = table
    return place
