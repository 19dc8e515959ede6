/* How a kernel gets its data. Built twice: plainly, with the advice that the
 * rival is given in KERNEL_ADVICE (normal, random, sequential); and with RUNAHEAD,
 * on the run-time layer. */
#define _GNU_SOURCE
#include "kernels.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef RUNAHEAD
#include "runahead_ooc.h"

void *map_data(const char *path, size_t bytes, int writable) {
  void *data = runahead_ooc_map(path, bytes, writable ? RUNAHEAD_OOC_UPDATE : RUNAHEAD_OOC_READ);
  if (!data) {
    perror(path);
    exit(1);
  }
  return data;
}
#else
void *map_data(const char *path, size_t bytes, int writable) {
  int descriptor = open(path, writable ? O_RDWR : O_RDONLY);
  void *data = descriptor < 0 ? MAP_FAILED
                              : mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                                     MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  close(descriptor);
  const char *advice = getenv("KERNEL_ADVICE");
  if (advice && !strcmp(advice, "random")) madvise(data, bytes, MADV_RANDOM);
  if (advice && !strcmp(advice, "sequential")) madvise(data, bytes, MADV_SEQUENTIAL);
  return data;
}
#endif
