/* Lets compiler/runtime/static_arrays.c stand alone: the arrays of a program go to a mapped file, and
 * nobody prefetches them. So the NAS codes are ordinary programs here, as far as Runahead can tell. */
#include "../../../compiler/runtime/internal.h"

int runahead_ooc_register_nameless(void *address, size_t bytes, int descriptor, uint64_t offset) {
  (void)address, (void)bytes, (void)descriptor, (void)offset;
  return 0;
}
