/* The report at exit: the paper's figures 4 and 5 and table 3. */
#include "internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double percent(uint64_t part, uint64_t whole) {
  return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Of the pages that were asked of the kernel, those that came from the disk: not more than the process read. What
 * was never written, or is another's in memory, is asked for and had without a read. FUSE's file systems
 * count nothing; there faults that waited tell that something was read (a few are waits for what another
 * reads). */
static uint64_t pages_brought(uint64_t sent, const struct rusage *usage) {
  uint64_t read = (uint64_t)usage->ru_inblock * 512 / PAGE_BYTES;
  bool uncounted = read == 0 && usage->ru_majflt >= 16;
  return sent > read && !uncounted ? read : sent;
}

EXPORTED void runahead_ooc_report(int descriptor) {
  uint64_t c[COUNTERS];
  for (unsigned i = 0; i < COUNTERS; i++) c[i] = count_of(i);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  uint64_t faults = (uint64_t)usage.ru_majflt;
  uint64_t dropped = c[COUNT_WANTED] + c[COUNT_MISSED] - c[COUNT_SENT] - c[COUNT_RUNS];
  /* Pages that were sent though they were in memory, from samples. */
  uint64_t needless = c[COUNT_LOOKED] ? c[COUNT_SENT] * c[COUNT_THERE] / c[COUNT_LOOKED] : 0;
  uint64_t brought = pages_brought(c[COUNT_SENT] - needless, &usage);
  uint64_t late = c[COUNT_CHECKED] ? brought * c[COUNT_LATE] / c[COUNT_CHECKED] : 0;
  uint64_t hits = brought - late, all = brought + faults;
  if (!regions_ever())
    dprintf(descriptor,
            "runahead: no region was there, so nothing could be prefetched. Link with --runahead-heap, "
            "--runahead-static or --runahead-mmap, or make regions with runahead_ooc_map, runahead_ooc_alloc or "
            "runahead_ooc_register\n");
  dprintf(descriptor,
          "runahead: nests entered %lu, declined %lu; steps %lu, streams restarted %lu\n"
          "runahead: pages asked for %lu, dropped by the filter %lu (%.2f%%), prefetched %lu in "
          "%lu calls, released %lu, told to be written %lu\n"
          "runahead: unnecessary %lu of which dropped %.2f%% without a call; %lu by one look at a "
          "run, %lu sent although in memory (from %lu looked at); of those dropped %.2f%% not in "
          "memory (%lu looked at)\n"
          "runahead: prefetched and in time %lu (%.1f%%), prefetched and late %lu (%.1f%%), "
          "faults that read the disk %lu (%.1f%%); from %lu samples\n"
          "runahead: looked at once more before their use %lu, of which missing %lu (%.2f%%)\n"
          "runahead: blocks read by the process %ld, memory limit %lu MB, regions %lu MB, "
          "disarmed %lu times, armed again %lu\n",
          c[COUNT_ENTERED], c[COUNT_DECLINED], c[COUNT_STEPS], c[COUNT_RESTARTS],
          c[COUNT_WANTED], dropped, percent(dropped, c[COUNT_WANTED]), c[COUNT_SENT],
          c[COUNT_CALLS], c[COUNT_RELEASED], c[COUNT_WRITTEN], dropped + c[COUNT_RUNS] + needless,
          percent(dropped, dropped + c[COUNT_RUNS] + needless), c[COUNT_RUNS], needless,
          c[COUNT_LOOKED], percent(c[COUNT_DROPPED_GONE], c[COUNT_DROPPED_LOOKED]),
          c[COUNT_DROPPED_LOOKED], hits, percent(hits, all), late, percent(late, all),
          faults, percent(faults, all), c[COUNT_CHECKED], c[COUNT_CONFIRMED], c[COUNT_MISSED],
          percent(c[COUNT_MISSED], c[COUNT_CONFIRMED]), usage.ru_inblock,
          limits_memory() >> 20, region_total_bytes() >> 20, c[COUNT_DISARMED],
          c[COUNT_REARMED]);
}

/* Libraries have copies of this layer, for programs without. Where the program has one, theirs are idle, as what is
 * exported is found in the program first. */
EXPORTED const char runahead_ooc_layer = 0;
extern const char this_layer __attribute__((alias("runahead_ooc_layer"), visibility("hidden")));

static bool is_in_use(void) {
  const char *volatile found = &runahead_ooc_layer, *volatile own = &this_layer;
  return found == own;
}

__attribute__((destructor)) static void at_exit(void) {
  const char *wanted = getenv("RUNAHEAD_OOC_STATS");
  if (wanted && !strcmp(wanted, "1") && is_in_use()) runahead_ooc_report(STDERR_FILENO);
}
