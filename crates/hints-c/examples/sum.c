/* Sums the bytes of the files that it is given, each disclosed before the first is read.
 *
 *   cc sum.c -I ../include -L ../../../target/release -lrunahead -o sum
 *   cc -DRUNAHEAD_OPTIONAL sum.c -I ../include -ldl -o sum       runs without the library as well
 */
#include <runahead.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
  struct runahead_segment *segments = calloc(count, sizeof *segments);
  for (int i = 1; i < count; i++) segments[i - 1].path = arguments[i];
  runahead_hint_batch(segments, count - 1);
  free(segments);

  unsigned long sum = 0;
  static unsigned char buffer[65536];
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(arguments[i], "rb");
    if (!file) {
      perror(arguments[i]);
      continue;
    }
    size_t length;
    while ((length = fread(buffer, 1, sizeof buffer, file)) > 0)
      for (size_t at = 0; at < length; at++) sum += buffer[at];
    fclose(file);
  }
  printf("%lu\n", sum);

  /* What became of the hints, if anybody asks. */
  if (getenv("SHOW_COUNTS")) {
    struct runahead_counts counts;
    memset(&counts, 0, sizeof counts);
    runahead_counts(&counts, sizeof counts);
    fprintf(stderr, "hints %lu, pages %lu\n", (unsigned long)counts.hints,
            (unsigned long)(counts.asked_pages + counts.cached_pages));
  }
  return 0;
}
