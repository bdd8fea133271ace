/* LD_PRELOAD library: how long each mutex is held that is taken by pthread_mutex_trylock.
 *
 * At exit it writes a line for each to the file that MUTEX_TIMES names: holds, nanoseconds held in
 * all, nanoseconds of the longest hold. A hold's time contains one read of the time stamp counter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define MUTEXES_MAX 64

struct times {
    pthread_mutex_t *mutex;
    uint64_t since, holds, ticks, longest;
};

static struct times known[MUTEXES_MAX];
static int count;
static int (*real_trylock)(pthread_mutex_t *);
static int (*real_lock)(pthread_mutex_t *);
static int (*real_unlock)(pthread_mutex_t *);
static uint64_t first_tick, first_ns;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void resolve(void) {
    real_trylock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    first_ns = now_ns();
    first_tick = __rdtsc();
}

__attribute__((constructor)) static void begin(void) {
    if (real_unlock == NULL)
        resolve();
}

static struct times *find(pthread_mutex_t *mutex) {
    int known_count = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
    for (int i = 0; i < known_count; i++)
        if (known[i].mutex == mutex)
            return &known[i];
    return NULL;
}

/* The caller holds the mutex; two threads that add different mutexes at once are not expected. */
static void held(pthread_mutex_t *mutex, int add) {
    struct times *found = find(mutex);
    if (found == NULL && add && count < MUTEXES_MAX) {
        found = &known[count];
        found->mutex = mutex;
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    }
    if (found != NULL)
        found->since = __rdtsc();
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    if (real_unlock == NULL)
        resolve();
    int failed = real_trylock(mutex);
    if (!failed)
        held(mutex, 1);
    return failed;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (real_unlock == NULL)
        resolve();
    int failed = real_lock(mutex);
    if (!failed)
        held(mutex, 0);
    return failed;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (real_unlock == NULL)
        resolve();
    struct times *found = find(mutex);
    if (found != NULL) {
        uint64_t ticks = __rdtsc() - found->since;
        found->holds++;
        found->ticks += ticks;
        if (ticks > found->longest)
            found->longest = ticks;
    }
    return real_unlock(mutex);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("MUTEX_TIMES");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL)
        return;
    double ns = (double)(now_ns() - first_ns) / (double)(__rdtsc() - first_tick);
    for (int i = 0; i < count; i++)
        fprintf(file, "%lu %.0f %.0f\n", known[i].holds, known[i].ticks * ns,
                known[i].longest * ns);
    fclose(file);
}
