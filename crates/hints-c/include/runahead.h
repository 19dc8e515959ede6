/* Runahead: say what your program will read, and have it read ahead.
 *
 * A program that knows its next reads discloses them, in order; the library's own threads bring them into
 * the page cache. Hints change no result, never wait, never fail and leave errno alone; whatever makes no
 * sense is dropped and counted. All functions may be called from any thread, none from a signal handler.
 *
 * Link with -lrunahead. Or, to run without the library too, define RUNAHEAD_OPTIONAL before
 * including this header (and link with -ldl where the C library wants that): it is then looked for at the
 * first call, and where it is absent the calls do nothing.
 */
#ifndef RUNAHEAD_H
#define RUNAHEAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes offset..offset+length of a file; length 0 means to its end. */
struct runahead_segment {
  const char *path;  /* relative to the working directory; NULL: the descriptor counts */
  uint64_t offset;
  uint64_t length;
  uint64_t token;    /* your own mark, to cancel by */
  int descriptor;
  int reserved;      /* 0 */
};

/* What will be done with a name. */
enum runahead_lookup {
  RUNAHEAD_STAT = 0,   /* stat, open, access */
  RUNAHEAD_LINK = 1,   /* readlink */
  RUNAHEAD_LIST = 2,   /* the directory is listed */
  RUNAHEAD_ENTRIES = 3 /* it is listed, and each entry looked up */
};

/* What became of this process's hints: in hints, unless the name says pages, names or jobs. */
struct runahead_counts {
  uint64_t hints;          /* given */
  uint64_t repeated;       /* repeated ones of the last seconds: dropped at once */
  uint64_t overflowed;     /* too much waited */
  uint64_t absurd;         /* made no sense */
  uint64_t unreadable;     /* no such file, or not ours to read */
  uint64_t not_a_file;     /* a directory, FIFO, device, socket, anything in /proc or /sys */
  uint64_t cancelled;
  uint64_t cached_pages;   /* were in the page cache */
  uint64_t asked_pages;    /* were read ahead */
  uint64_t left_pages;     /* of long runs, left to the kernel's read-ahead */
  uint64_t used_pages;     /* thought to have been read by the program after that */
  uint64_t unused_pages;   /* thought not to */
  uint64_t names;          /* looked up */
  uint64_t released_pages;
  uint64_t most_in_flight; /* requests at once */
  uint64_t jobs;
  uint64_t unmapped_pages; /* of hints for memory: nothing is mapped there */
};

/* F(name, parameters, arguments) for every function; each returns nothing. */
#define RUNAHEAD_FUNCTIONS(F) \
  F(runahead_hint, (const char *path, uint64_t offset, uint64_t length), (path, offset, length)) \
  F(runahead_hint_fd, (int fd, uint64_t offset, uint64_t length), (fd, offset, length)) \
  F(runahead_hint_memory, (const void *address, size_t length), (address, length)) \
  F(runahead_hint_name, (const char *path, int lookup), (path, lookup)) \
  F(runahead_hint_batch, (const struct runahead_segment *segments, size_t count), (segments, count)) \
  F(runahead_release, (const char *path, uint64_t offset, uint64_t length), (path, offset, length)) \
  F(runahead_release_fd, (int fd, uint64_t offset, uint64_t length), (fd, offset, length)) \
  F(runahead_cancel_all, (void), ()) \
  F(runahead_cancel_token, (uint64_t token), (token)) \
  F(runahead_cancel_path, (const char *path), (path)) \
  F(runahead_counts, (struct runahead_counts *counts, size_t size), (counts, size))

#ifndef RUNAHEAD_OPTIONAL

#define RUNAHEAD_DECLARE(name, parameters, arguments) void name parameters;
RUNAHEAD_FUNCTIONS(RUNAHEAD_DECLARE)
#undef RUNAHEAD_DECLARE

#else

#include <dlfcn.h>
#include <errno.h>

/* Looked up once for each function and file that uses it; two threads at once find the same. */
static inline void *runahead_find(const char *name) {
  int before = errno;
  void *library = dlopen("librunahead.so", RTLD_LAZY | RTLD_LOCAL);
  void *found = library ? dlsym(library, name) : NULL;
  errno = before;
  return found;
}

#define RUNAHEAD_DEFINE(name, parameters, arguments) \
  static inline __attribute__((unused)) void name parameters { \
    static void *found; \
    static int looked; \
    if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) { \
      __atomic_store_n(&found, runahead_find(#name), __ATOMIC_RELAXED); \
      __atomic_store_n(&looked, 1, __ATOMIC_RELEASE); \
    } \
    void(*call) parameters = \
        __extension__(void(*) parameters)__atomic_load_n(&found, __ATOMIC_RELAXED); \
    if (call) call arguments; \
  }
RUNAHEAD_FUNCTIONS(RUNAHEAD_DEFINE)
#undef RUNAHEAD_DEFINE

#endif

#ifdef __cplusplus
}
#endif

#endif
