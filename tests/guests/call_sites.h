// The calls of libraries/call_sites.c, and what they see.
#ifndef CALL_SITES_H
#define CALL_SITES_H
#include <stdint.h>

enum { BELOW = 4096, ZONE = 128 };

struct asked {
    long arguments[6];
    // For the vector registers.
    const void *patterns;
    // Called right before; it may change nothing but the flags.
    void (*begin)(void);
};

struct seen {
    // rbx, rbp, r12 to r15
    uint64_t general[6], flags;
    unsigned char vector[16][16], zone[ZONE];
    // Words below the red zone that were changed.
    uint64_t below;
};

#ifdef __cplusplus
extern "C" {
#endif
long site_read(const struct asked *asked, struct seen *seen);
long site_close(const struct asked *asked, struct seen *seen);
long site_mmap(const struct asked *asked, struct seen *seen);
long site_pread(const struct asked *asked, struct seen *seen);
long site_readv(const struct asked *asked, struct seen *seen);
long site_sigaltstack(const struct asked *asked, struct seen *seen);
long site_getdents(const struct asked *asked, struct seen *seen);
long site_exit(const struct asked *asked, struct seen *seen);
long site_stat(const struct asked *asked, struct seen *seen);
// `state` has no bit that tells of a cancellation.
long site_cancellable(int *state, long number, long a, long b, long c, long d, long e, long f);
#ifdef __cplusplus
}
#endif
#endif
