/* How much memory there is: the tightest cgroup above us, else the machine.
 *
 * Both cgroup versions. Files are opened for each look and closed again: the
 * program's descriptor table stays as it was.
 */
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t memory_limit;
static char usage_file[PATH_MAX]; /* of the tightest group; written before memory_limit */

uint64_t limits_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static ssize_t slurp(const char *path, char *out, size_t room) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  ssize_t got = read(descriptor, out, room - 1);
  close(descriptor);
  if (got >= 0) out[got] = 0;
  return got;
}

/* Walks from the group up to the mount, keeping the smallest limit. */
static uint64_t tightest(const char *mount, char *group, const char *limit_name,
                         const char *usage_name, uint64_t best) {
  char path[PATH_MAX], text[64];
  for (;;) {
    snprintf(path, sizeof path, "%s%s/%s", mount, group, limit_name);
    if (slurp(path, text, sizeof text) > 0 && text[0] >= '0' && text[0] <= '9') {
      uint64_t limit = strtoull(text, NULL, 10);
      if (limit < best) {
        best = limit;
        snprintf(usage_file, sizeof usage_file, "%s%s/%s", mount, group, usage_name);
      }
    }
    char *slash = strrchr(group, '/');
    if (!slash) return best;
    *slash = 0;
  }
}

static uint64_t find_limit(void) {
  uint64_t best = (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE_BYTES;
  char text[4096];
  if (slurp("/proc/self/cgroup", text, sizeof text) <= 0) return best;
  char *rest; /* strtok's own is the program's */
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    if (!strcmp(group, "/")) *group = 0;
    if (!strcmp(controllers + 1, "memory"))
      best = tightest("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                      "memory.usage_in_bytes", best);
    else if (controllers[1] == 0)
      best = tightest("/sys/fs/cgroup", group, "memory.max", "memory.current", best);
  }
  return best;
}

/* The read-ahead setting of the device under a mapping; 0 where there is none. */
uint64_t limits_read_ahead(uint64_t address) {
  int saved = errno;
  char line[512], path[64], text[64];
  unsigned long start, end;
  unsigned major = 0, minor = 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %*s %*s %x:%x", &start, &end, &major, &minor) == 4 &&
        address >= start && address < end)
      break;
    else
      major = minor = 0;
  if (maps) fclose(maps);
  snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
  ssize_t got = major || minor ? slurp(path, text, sizeof text) : -1;
  errno = saved;
  return got > 0 ? strtoull(text, NULL, 10) << 10 : 0;
}

/* Digits, then nothing, or K, M, G or T with what people write behind it. */
bool size_read(const char *text, uint64_t *bytes) {
  static const char units[] = "KMGT";
  char *rest;
  if (text[0] < '0' || text[0] > '9') return false;
  int saved = errno;
  errno = 0;
  *bytes = strtoull(text, &rest, 10);
  bool fits = errno == 0;
  errno = saved;
  const char *unit = *rest ? strchr(units, *rest & ~0x20) : NULL;
  if (*rest && !unit) return false;
  uint64_t factor = 1;
  if (unit) factor = (uint64_t)1024 << 10 * (unit - units);
  if (unit) rest++;
  if (unit && (*rest == 'i' || *rest == 'I')) rest++;
  if (unit && (*rest == 'b' || *rest == 'B')) rest++;
  return fits && !*rest && !__builtin_mul_overflow(*bytes, factor, bytes);
}

void size_complain(const char *name, const char *value, const char *instead) {
  char text[512];
  snprintf(text, sizeof text,
           "runahead: %s=%.100s is no size (a number of bytes, or one with K, M, G or T behind it): %s.\n", name, value,
           instead);
  (void)!write(STDERR_FILENO, text, strlen(text));
}

/* What the user says counts; how much of it is used, the group knows all the same. */
static uint64_t told_or_found(void) {
  uint64_t found = find_limit(), bytes = 0;
  const char *told = getenv("RUNAHEAD_OOC_MEMORY");
  if (!told || !*told) return found;
  if (size_read(told, &bytes) && bytes) return bytes;
  size_complain("RUNAHEAD_OOC_MEMORY", told, "what the machine and the control group allow counts");
  return found;
}

uint64_t limits_memory(void) {
  uint64_t limit = atomic_load_explicit(&memory_limit, memory_order_acquire);
  if (limit) return limit;
  int saved = errno;
  limit = told_or_found();
  errno = saved;
  atomic_store_explicit(&memory_limit, limit ? limit : 1, memory_order_release);
  return limit;
}

bool limits_pressed(uint64_t room) {
  uint64_t limit = limits_memory();
  char text[64];
  int saved = errno;
  bool pressed = true; /* where nobody counts, memory is taken for full */
  if (usage_file[0] && slurp(usage_file, text, sizeof text) > 0)
    pressed = strtoull(text, NULL, 10) > (room < limit ? limit - room : 0);
  errno = saved;
  return pressed;
}
