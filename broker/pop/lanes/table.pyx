"""The pop plans of a lane (pop_plan.pyx), for its thread without the GIL."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.stdint cimport int32_t, int64_t

from congreve.base.atomic cimport load_acquire
from congreve.broker.pop.lanes.pop_plan cimport PopPlan, put_key
from congreve.broker.pull.lanes.plan_table cimport LanePlan, LanePlanTable
from congreve.records.byte_table cimport Key, key_of


@cython.final
cdef class LanePopTable(LanePlanTable):
    """The pop plans of one lane; their queues keep at most `files_max` files mapped."""

    def __cinit__(self, PopPlans plans not None, Py_ssize_t files_max):
        self.plans = plans
        self.files_max = files_max
        self.changes, self.added = &plans.changes, &plans.added

    def __dealloc__(self):
        self.clear()

    cdef LanePop *find(self, const PopHeader *pop) noexcept nogil:
        cdef Py_ssize_t length = put_key(pop, <char *> self.bytes)
        cdef Key key
        if length < 0:
            return NULL
        key = key_of(self.bytes, <int32_t> length)
        return <LanePop *> self.plan_of(&key)

    cdef int keep_file(self, LanePop *known, int32_t queue, Mapping mapping,
                       int64_t base) except -1:
        cdef PopFile *file = &known.files[queue]
        self.files -= file.mapping != NULL
        file.file = NULL
        Py_CLEAR(file.mapping)
        if mapping is None:
            return 0
        if self.files >= self.files_max:
            self.clear_files()
        Py_INCREF(mapping)
        file.mapping, file.file, file.base = <PyObject *> mapping, mapping.data, base
        self.files += 1
        return 0

    cdef int clear_files(self) except -1:
        cdef Py_ssize_t i
        for i in range(self.capacity):
            if self.slots[i] != NULL:
                self.drop_files(<LanePop *> self.slots[i])
        return 0

    cdef int drop_files(self, LanePop *known) except -1:
        cdef int32_t i
        if known.files != NULL:
            for i in range(known.count + known.retries):
                self.keep_file(known, i, None, 0)
        return 0

    cdef int learn(self, const Key *key) except -1:
        # The numbers are read first: a change during the look-up causes another one.
        cdef int64_t changes = load_acquire(&self.plans.changes)
        cdef int64_t added = load_acquire(&self.plans.added)
        cdef LanePop *known = <LanePop *> self.known(key)
        cdef PopPlan plan = self.plans.for_lane(
            PyBytes_FromStringAndSize(<const char *> key.bytes, key.length)
        )
        if known == NULL:
            known = <LanePop *> self.add(key, sizeof(LanePop))
        if known.cached.plan != <PyObject *> plan:
            self.forget(&known.cached)
            if plan is not None:
                known.files = <PopFile *> PyMem_Calloc(
                    plan.count + plan.retries, sizeof(PopFile)
                )
                if known.files == NULL:
                    raise MemoryError()
                Py_INCREF(plan)
                known.cached.plan = <PyObject *> plan
                known.queues, known.count, known.retries = plan.queues, plan.count, plan.retries
                known.waiting = &plan.waiting.counts
        if plan is not None:
            known.direction = self.plans.direction(plan)
            known.retries_first = self.plans.retries_first(plan)
        known.waiting_max = self.plans.waiting_max()
        known.all_waiting_max = self.plans.all_waiting_max()
        known.cached.changes, known.cached.added, known.nothing_at = changes, added, -1
        return 0

    cdef int forget(self, LanePlan *cached) except -1:
        cdef LanePop *known = <LanePop *> cached
        self.drop_files(known)
        PyMem_Free(known.files)
        known.files, known.count, known.retries, known.costly = NULL, 0, 0, False
        Py_CLEAR(cached.plan)
        return 0
