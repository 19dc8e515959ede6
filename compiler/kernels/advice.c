/* Linked into the rivals that compiler/measure.py runs: tells the kernel how the static arrays,
 * which are on a file by then (this is linked behind what puts them there), will be gone
 * through. KERNEL_ADVICE is normal, random or sequential. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern char __bss_start[], _end[];

__attribute__((constructor)) static void advise(void) {
  const char *advice = getenv("KERNEL_ADVICE");
  uintptr_t first = ((uintptr_t)__bss_start + 4095) & ~(uintptr_t)4095;
  uintptr_t last = (uintptr_t)_end & ~(uintptr_t)4095;
  if (!advice || last <= first) return;
  int how = !strcmp(advice, "random")       ? MADV_RANDOM
            : !strcmp(advice, "sequential") ? MADV_SEQUENTIAL
                                            : MADV_NORMAL;
  if (madvise((void *)first, last - first, how)) abort();
}
