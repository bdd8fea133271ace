/* Encrypted connections, by the OpenSSL of the machine; its headers are not needed. */
#include "loadgen.h"

#include <dlfcn.h>
#include <errno.h>

enum { WANT_READ = 2, WANT_WRITE = 3, CTRL_MODE = 33, CTRL_READ_AHEAD = 41 };
enum { PARTIAL_WRITE = 1, MOVING_BUFFER = 2 };

static void *context;
static void *(*ssl_new)(void *);
static int (*ssl_set_fd)(void *, int);
static int (*ssl_connect)(void *);
static int (*ssl_read)(void *, void *, int);
static int (*ssl_write)(void *, const void *, int);
static int (*ssl_get_error)(const void *, int);
static void (*err_clear_error)(void);

static void *named(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        die("libssl has no %s", name);
    return found;
}

void tls_begin(void)
{
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        die("no libssl.so.3: %s", dlerror());
    void *(*method)(void) = named(library, "TLS_client_method");
    void *(*new_context)(const void *) = named(library, "SSL_CTX_new");
    long (*control)(void *, int, long, void *) = named(library, "SSL_CTX_ctrl");
    ssl_new = named(library, "SSL_new");
    ssl_set_fd = named(library, "SSL_set_fd");
    ssl_connect = named(library, "SSL_connect");
    ssl_read = named(library, "SSL_read");
    ssl_write = named(library, "SSL_write");
    ssl_get_error = named(library, "SSL_get_error");
    err_clear_error = named(library, "ERR_clear_error");
    context = new_context(method());
    control(context, CTRL_MODE, PARTIAL_WRITE | MOVING_BUFFER, NULL);
    control(context, CTRL_READ_AHEAD, 1, NULL);
}

void *tls_connect(int fd)
{
    void *session = ssl_new(context);
    if (!session || ssl_set_fd(session, fd) != 1 || ssl_connect(session) != 1)
        die("the TLS handshake failed");
    return session;
}

static ssize_t result_of(void *session, int step)
{
    if (step > 0)
        return step;
    int kind = ssl_get_error(session, step);
    errno = kind == WANT_READ || kind == WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

ssize_t tls_send(void *session, const char *data, size_t size)
{
    err_clear_error();
    return result_of(session, ssl_write(session, data, (int)size));
}

/* All that has arrived, up to `size`. */
ssize_t tls_receive(void *session, char *data, size_t size)
{
    size_t got = 0;
    while (got < size) {
        err_clear_error();
        ssize_t step = result_of(session, ssl_read(session, data + got, (int)(size - got)));
        if (step < 0)
            return got ? (ssize_t)got : -1;
        got += (size_t)step;
    }
    return (ssize_t)got;
}
