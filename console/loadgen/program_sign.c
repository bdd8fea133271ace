/* HmacSHA1 as RocketMQ's clients sign requests, by the machine's OpenSSL. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <dlfcn.h>
#include <string.h>

enum { BLOCK = 64, DIGEST = 20 };

typedef struct {
    uint64_t words[16]; /* OpenSSL's SHA_CTX has 96 bytes */
} context;

static int (*sha1_init)(context *);
static int (*sha1_update)(context *, const void *, size_t);
static int (*sha1_final)(unsigned char *, context *);
static context inner, outer;

void sign_begin(const char *secret)
{
    void *library = dlopen("libcrypto.so.3", RTLD_NOW);
    if (!library)
        die("--access-key needs libcrypto.so.3: %s", dlerror());
    *(void **)&sha1_init = dlsym(library, "SHA1_Init");
    *(void **)&sha1_update = dlsym(library, "SHA1_Update");
    *(void **)&sha1_final = dlsym(library, "SHA1_Final");
    if (!sha1_init || !sha1_update || !sha1_final)
        die("libcrypto.so.3 has no SHA-1");
    unsigned char block[BLOCK] = {0};
    if (strlen(secret) > BLOCK)
        die("--secret-key: use %d characters at most", BLOCK);
    memcpy(block, secret, strlen(secret));
    for (int i = 0; i < BLOCK; i++)
        block[i] ^= 0x36;
    sha1_init(&inner);
    sha1_update(&inner, block, BLOCK);
    for (int i = 0; i < BLOCK; i++)
        block[i] ^= 0x36 ^ 0x5c;
    sha1_init(&outer);
    sha1_update(&outer, block, BLOCK);
}

void sign(const char *content, size_t size, const char *body, size_t body_size, char *signature)
{
    static const char base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char digest[DIGEST + 1];
    context now = inner;
    sha1_update(&now, content, size);
    sha1_update(&now, body, body_size);
    sha1_final(digest, &now);
    now = outer;
    sha1_update(&now, digest, DIGEST);
    sha1_final(digest, &now);
    digest[DIGEST] = 0;
    for (int i = 0; i < 7; i++) {
        unsigned three = digest[3 * i] << 16u | digest[3 * i + 1] << 8u | digest[3 * i + 2];
        for (int j = 0; j < 4; j++)
            signature[4 * i + j] = base64[three >> (18 - 6 * j) & 63];
    }
    signature[SIGNATURE_SIZE - 1] = '=';
}
