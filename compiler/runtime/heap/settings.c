/* What the user wants of the heap, by the environment, and what is said to him. */
#define _GNU_SOURCE
#include "heap.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A thousandth of memory, within these: below, so many blocks would be out of core that there is no room in the
 * tables; above, a program of many middling blocks would get nothing. */
#define MIN_SMALLEST ((uint64_t)256 << 10)
#define MAX_SMALLEST ((uint64_t)4 << 20)

struct settings settings = {.cause = "", .smallest = MIN_SMALLEST};

void heap_tell(const char *text) {
  (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Once; what is said first is the cause. */
void heap_tell_stays(int error) {
  static bool told;
  char text[sizeof settings.folder + 256], reason[128];
  if (told) return;
  told = true;
  if (*settings.cause)
    snprintf(text, sizeof text, "runahead: heap blocks stay in memory: %s.\n", settings.cause);
  else
    snprintf(text, sizeof text,
             "runahead: heap blocks stay in memory: %s: %s. Set RUNAHEAD_OOC_DIR to a directory on a disk with room "
             "for them.\n",
             settings.folder, strerror_r(error, reason, sizeof reason));
  heap_tell(text);
}

/* Before the program is begun with, or at the first large block, whichever comes first: the environment is the
 * program's to change later. */
void settings_read(void) {
  if (settings.mode != HEAP_UNREAD) return;
  const char *all = getenv("RUNAHEAD_OOC"), *how = getenv("RUNAHEAD_OOC_HEAP");
  const char *where = getenv("RUNAHEAD_OOC_DIR");
  if (!where) where = getenv("TMPDIR");
  if (!where) where = "/var/tmp";
  uint64_t bytes;
  settings.mode = HEAP_WHEN_SHORT;
  if ((all && all[0] == '0') || (how && !strcmp(how, "0"))) {
    settings.mode = HEAP_OFF;
  } else if (how && strcmp(how, "1") && size_read(how, &bytes) && bytes) {
    settings.mode = HEAP_ALWAYS;
    settings.smallest = bytes;
  } else if (how && *how && strcmp(how, "1")) {
    size_complain("RUNAHEAD_OOC_HEAP", how, "a block is out of core where it would not fit into memory");
  }
  if (strlen(where) < sizeof settings.folder)
    strcpy(settings.folder, where);
  else
    settings.unusable = true;
}

void settings_choose_smallest(void) {
  if (settings.mode != HEAP_WHEN_SHORT || settings.smallest != MIN_SMALLEST) return;
  uint64_t part = limits_memory() / 1024;
  settings.smallest = part < MIN_SMALLEST ? MIN_SMALLEST : part > MAX_SMALLEST ? MAX_SMALLEST : part;
}
