/* kernels make DIRECTORY MEGABYTES | kernels KERNEL DIRECTORY MEGABYTES
 *
 * `make` writes the data files; a kernel run prints its result's bits, the seconds that
 * the kernel itself took, and how many of them it stood still. */
#define _GNU_SOURCE
#include "kernels.h"
#include "stall.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW_BYTES (64 * 1024)
#define PER_ROW 24 /* average entries of a sparse row */

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static const char *name_in(const char *directory, const char *file) {
  static char path[4][4096];
  static int turn;
  char *out = path[turn++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", directory, file);
  return out;
}

static FILE *create(const char *directory, const char *file) {
  FILE *f = fopen(name_in(directory, file), "w");
  if (!f) {
    perror(directory);
    exit(1);
  }
  return f;
}

static void finish(FILE *f) {
  fflush(f);
  fsync(fileno(f));
  posix_fadvise(fileno(f), 0, 0, POSIX_FADV_DONTNEED);
  fclose(f);
}

/* Indices that the gather reads, and entries of the sparse matrix. */
static long indices(size_t bytes) { return (long)(bytes / 4096 / 2); }
static long entries(size_t bytes) { return (long)(bytes / 12 / 4); }

static void make(const char *directory, size_t bytes) {
  FILE *f = create(directory, "array");
  long n = (long)(bytes / sizeof(double));
  for (long i = 0; i < n; i++) {
    double v = (double)(int64_t)(next_random() >> 40) / 256.0;
    fwrite(&v, sizeof v, 1, f);
  }
  finish(f);
  f = create(directory, "index");
  for (long i = 0; i < indices(bytes); i++) {
    uint32_t v = (uint32_t)(next_random() % (uint64_t)n);
    fwrite(&v, sizeof v, 1, f);
  }
  finish(f);
  long all = entries(bytes), rows = 0;
  f = create(directory, "row");
  for (long at = 0;; rows++) {
    fwrite(&at, sizeof at, 1, f);
    if (at == all) break;
    at += (long)(next_random() % (2 * PER_ROW));
    if (at > all) at = all;
  }
  finish(f);
  f = create(directory, "column");
  /* 99 entries in a hundred lie near the diagonal, one anywhere: a mesh with long links. */
  for (long i = 0; i < all; i++) {
    uint64_t near = (uint64_t)((double)i / (double)all * (double)n);
    uint32_t v = (uint32_t)((next_random() % 100 ? near + next_random() % 4096 : next_random()) % (uint64_t)n);
    fwrite(&v, sizeof v, 1, f);
  }
  finish(f);
  f = create(directory, "rows");
  fprintf(f, "%ld\n", rows);
  finish(f);
  f = create(directory, "out");
  if (ftruncate(fileno(f), (off_t)bytes)) perror("out");
  finish(f);
}

static long stored_rows(const char *directory) {
  FILE *f = fopen(name_in(directory, "rows"), "r");
  long rows = 0;
  if (!f || fscanf(f, "%ld", &rows) != 1) {
    fprintf(stderr, "no data in %s: run `kernels make` first\n", directory);
    exit(1);
  }
  fclose(f);
  return rows;
}

static double checksum(const double *v, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += v[i] * (double)(1 + (i & 7));
  return sum;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s make|gather|spmv|column|sum|matvec|stencil DIRECTORY MEGABYTES\n", argv[0]);
    return 2;
  }
  const char *kernel = argv[1], *directory = argv[2];
  size_t bytes = (size_t)atol(argv[3]) << 20;
  if (!strcmp(kernel, "make")) {
    make(directory, bytes);
    return 0;
  }
  long n = (long)(bytes / sizeof(double));
  double result = 0, start = 0;
  const double *array = map_data(name_in(directory, "array"), bytes, 0);
  if (!strcmp(kernel, "gather")) {
    const uint32_t *index = map_data(name_in(directory, "index"), (size_t)indices(bytes) * 4, 0);
    start = begin();
    result = gather(array, index, indices(bytes));
  } else if (!strcmp(kernel, "spmv")) {
    long rows = stored_rows(directory), all = entries(bytes);
    const long *row = map_data(name_in(directory, "row"), (size_t)(rows + 1) * 8, 0);
    const uint32_t *column = map_data(name_in(directory, "column"), (size_t)all * 4, 0);
    double *y = calloc((size_t)rows, sizeof *y);
    start = begin();
    /* x is the array; the values are its beginning. */
    spmv(y, row, column, array, array, rows);
    result = checksum(y, rows);
  } else if (!strcmp(kernel, "column")) {
    long columns = ROW_BYTES / 8;
    start = begin();
    result = column_walk(array, n / columns, columns, 1000, 8);
  } else if (!strcmp(kernel, "sum")) {
    start = begin();
    result = sequential_sum(array, n);
  } else if (!strcmp(kernel, "matvec")) {
    long columns = ROW_BYTES / 8, rows = n / columns;
    double *x = malloc((size_t)columns * 8), *y = malloc((size_t)rows * 8);
    for (long i = 0; i < columns; i++) x[i] = 1.0 / (double)(i + 1);
    start = begin();
    for (int times = 0; times < 2; times++) matvec(y, array, x, rows, columns);
    result = checksum(y, rows);
  } else if (!strcmp(kernel, "stencil")) {
    long nx = 256, ny = 256, nz = n / nx / ny;
    double *out = map_data(name_in(directory, "out"), bytes, 1);
    start = begin();
    stencil(out, array, nx, ny, nz);
    result = out[(nz / 2) * nx * ny + 5000] + out[nx * ny + nx + 1];
  } else {
    fprintf(stderr, "no kernel '%s'\n", kernel);
    return 2;
  }
  double time = end(start);
  uint64_t bits;
  memcpy(&bits, &result, sizeof bits);
  printf("%016llx %.4f %.4f\n", (unsigned long long)bits, time, stalled);
  return 0;
}
