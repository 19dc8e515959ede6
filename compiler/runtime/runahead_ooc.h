/* Out-of-core memory for programs compiled with the Runahead pass.
 *
 * A region is a range of the address space whose pages may be on disk: a mapped
 * file, or memory that may be swapped. Loops compiled with the pass prefetch
 * inside regions and nowhere else. Registering is a statement about speed only;
 * no call here changes what the program computes, and unmapping a region without
 * saying so is harmless.
 *
 * All functions are thread-safe; none is async-signal-safe.
 */
#ifndef RUNAHEAD_OOC_H
#define RUNAHEAD_OOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum runahead_ooc_mode {
  RUNAHEAD_OOC_READ = 1,   /* map an existing file for reading */
  RUNAHEAD_OOC_UPDATE = 2, /* map an existing file; stores reach the file */
  RUNAHEAD_OOC_CREATE = 3  /* create, or extend, the file to `bytes` first */
};

/* Maps `bytes` bytes of the file `path` (0: all of it) and registers the range.
 * Returns its address, or NULL with errno set. The file is opened and closed here, and where
 * stores reach it closed once more when it is unmapped: either drops the locks (fcntl) that
 * the process has on it. */
void *runahead_ooc_map(const char *path, size_t bytes, enum runahead_ooc_mode mode);

/* Memory that is not limited by RAM: a nameless file in `directory` (NULL: the
 * environment's RUNAHEAD_OOC_DIR, else TMPDIR, else /var/tmp), zero-filled and
 * registered. Returns NULL with errno set on failure. */
void *runahead_ooc_alloc(size_t bytes, const char *directory);

/* Unregisters and unmaps what one of the two above returned. 0, or -1 with errno. Waits, a second at most,
 * for a read of ours that is under way there; so does runahead_ooc_unregister. */
int runahead_ooc_unmap(void *address, size_t bytes);

/* Tells of a range that the program has mapped itself. 0, or -1 with errno:
 * ENOSPC when the table of regions is full, EINVAL for an empty range. */
int runahead_ooc_register(void *address, size_t bytes);
/* The same for a shared mapping of a file that the program changes, `offset` being that of
 * `address` in it: what was changed is written early. The descriptor is duplicated, to a number
 * from 200 on; it is closed when the range is unregistered, and that, as POSIX has
 * it, drops all locks (fcntl) that the process has on the file: a program that keeps such locks
 * calls runahead_ooc_register instead. */
int runahead_ooc_register_file(void *address, size_t bytes, int descriptor, uint64_t offset);
int runahead_ooc_unregister(void *address);

/* Writes the statistics so far to the file descriptor; what RUNAHEAD_OOC_STATS=1
 * prints to standard error at exit. */
void runahead_ooc_report(int descriptor);

#ifdef __cplusplus
}
#endif
#endif
