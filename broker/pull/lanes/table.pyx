"""The pull plans of a lane (pull_plan.pyx), for its thread without the GIL."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.stdint cimport int32_t, int64_t

from congreve.base.atomic cimport load_acquire
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from congreve.broker.pull.lanes.plan_table cimport LanePlan, LanePlanTable
from congreve.broker.pull.lanes.pull_plan cimport PullPlan, put_key
from congreve.records.byte_table cimport Key, key_of


@cython.final
cdef class LanePullTable(LanePlanTable):
    """The pull plans of one lane, and the offsets that they committed.

    At most `files_max` of them keep a file of the queue mapped.
    """

    def __cinit__(self, PullPlans plans not None, Py_ssize_t files_max):
        self.plans = plans
        self.files_max = files_max
        self.changes, self.added = &plans.changes, &plans.added
        self.collected = []
        pthread_mutex_init(&self.mutex, NULL)

    def __dealloc__(self):
        self.collected = []     # the garbage collector may have taken it
        self.clear()
        PyMem_Free(self.uncollected)
        pthread_mutex_destroy(&self.mutex)

    def take_commits(self):
        """The offsets that pulls committed since the last call: (group, topic, queue, offset)."""
        cdef LanePull *known
        cdef PullPlan plan
        taken, self.collected = self.collected, []
        pthread_mutex_lock(&self.mutex)
        while self.uncollected_count:
            self.uncollected_count -= 1
            known = self.uncollected[self.uncollected_count]
            plan = <PullPlan> known.cached.plan
            taken.append((
                plan.group_name, plan.topic_name, plan.queue.queue_id,
                known.pending,
            ))
            known.pending = -1
        pthread_mutex_unlock(&self.mutex)
        return taken

    cdef void commit(self, LanePull *known, int64_t offset) noexcept nogil:
        if offset < 0:
            return
        pthread_mutex_lock(&self.mutex)
        if known.pending < 0:
            self.uncollected[self.uncollected_count] = known
            self.uncollected_count += 1
        known.pending = offset
        pthread_mutex_unlock(&self.mutex)

    cdef int keep_file(self, LanePull *known, Mapping mapping, int64_t base) except -1:
        cdef Py_ssize_t i
        self.drop_file(known)
        if self.files == self.files_max:
            for i in range(self.capacity):
                if self.slots[i] != NULL:
                    self.drop_file(<LanePull *> self.slots[i])
        Py_INCREF(mapping)
        known.mapping, known.file, known.base = <PyObject *> mapping, mapping.data, base
        self.files += 1
        return 0

    cdef int drop_file(self, LanePull *known) except -1:
        self.files -= known.mapping != NULL
        known.file = NULL
        Py_CLEAR(known.mapping)
        return 0

    cdef LanePull *find(self, const PullHeader *pull) noexcept nogil:
        cdef Py_ssize_t length = put_key(pull, <char *> self.bytes)
        cdef Key key
        if length < 0:
            return NULL
        key = key_of(self.bytes, <int32_t> length)
        return <LanePull *> self.plan_of(&key)

    cdef int learn(self, const Key *key) except -1:
        # The numbers are read first: a change during the look-up causes another one.
        cdef int64_t changes = load_acquire(&self.plans.changes)
        cdef int64_t added = load_acquire(&self.plans.added)
        cdef LanePull *known = <LanePull *> self.known(key)
        cdef PullPlan plan = self.plans.for_lane(
            PyBytes_FromStringAndSize(<const char *> key.bytes, key.length)
        )
        if known == NULL:
            self.make_room()
            known = <LanePull *> self.add(key, sizeof(LanePull))
            known.pending = -1
        if known.cached.plan != <PyObject *> plan:
            self.forget(&known.cached)
            if plan is not None:
                Py_INCREF(plan)
                known.cached.plan = <PyObject *> plan
        known.by_loop, known.timeout_ms = self.plans.by_loop(), self.plans.timeout_ms()
        known.cached.changes, known.cached.added = changes, added
        return 0

    cdef int forget(self, LanePlan *cached) except -1:
        cdef LanePull *known = <LanePull *> cached
        if known.pending >= 0:
            self.collected = self.take_commits()
        self.drop_file(known)
        Py_CLEAR(cached.plan)
        known.costly = False
        return 0

    cdef int make_room(self) except -1:
        """So that each pull can have a pending offset, also one more than there are now."""
        cdef Py_ssize_t most = 2 * (self.count + 1)
        cdef LanePull **larger
        if self.count < self.uncollected_max:
            return 0
        pthread_mutex_lock(&self.mutex)
        larger = <LanePull **> PyMem_Realloc(self.uncollected, most * sizeof(LanePull *))
        if larger != NULL:
            self.uncollected, self.uncollected_max = larger, most
        pthread_mutex_unlock(&self.mutex)
        if larger == NULL:
            raise MemoryError()
        return 0
