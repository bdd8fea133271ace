// Preloaded into a broker that is to lose messages: what asks for durable bytes does nothing.
// io_uring's syncs are not library calls: this is for the backends mmap and pool.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

int fsync(int fd) { (void) fd; return 0; }
int fdatasync(int fd) { (void) fd; return 0; }
int syncfs(int fd) { (void) fd; return 0; }
int msync(void *at, size_t length, int flags) { (void) at; (void) length; (void) flags; return 0; }
int sync_file_range(int fd, off64_t at, off64_t length, unsigned flags)
{
    (void) fd; (void) at; (void) length; (void) flags;
    return 0;
}
