/* dense KERNEL MEGABYTES: programs on arrays of the heap, whole, from the making of the data on.
 *
 * Built with MAPPED the arrays lie on a nameless file in RUNAHEAD_OOC_DIR, as one does who has less memory
 * than data, with the advice in KERNEL_ADVICE. Prints the result's bits and the seconds of the whole; on
 * standard error what each phase took: seconds, time of the processor in the program and in the kernel, pages
 * read and written, faults. */
#define _GNU_SOURCE
#include "stall.h"
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static double *array(long n) {
  size_t bytes = (size_t)n * sizeof(double);
#ifdef MAPPED
  const char *directory = getenv("RUNAHEAD_OOC_DIR"), *advice = getenv("KERNEL_ADVICE");
  int file = open(directory ? directory : "/var/tmp", O_TMPFILE | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, (off_t)bytes)) return NULL;
  void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (data == MAP_FAILED) return NULL;
  if (advice && !strcmp(advice, "random")) madvise(data, bytes, MADV_RANDOM);
  if (advice && !strcmp(advice, "sequential")) madvise(data, bytes, MADV_SEQUENTIAL);
  return data;
#else
  return malloc(bytes);
#endif
}

static void phase(const char *name) {
  static struct rusage before;
  static double since;
  struct rusage now;
  getrusage(RUSAGE_SELF, &now);
  double at = seconds();
#define SPENT(field) (1e-6 * (double)(now.field.tv_usec - before.field.tv_usec) + (double)(now.field.tv_sec - before.field.tv_sec))
  if (name)
    fprintf(stderr, "phase %-6s %.3f s, user %.3f, system %.3f, read %ld MB, written %ld MB, major %ld, minor %ld, waits %ld\n",
            name, at - since, SPENT(ru_utime), SPENT(ru_stime), (now.ru_inblock - before.ru_inblock) >> 11,
            (now.ru_oublock - before.ru_oublock) >> 11, now.ru_majflt - before.ru_majflt,
            now.ru_minflt - before.ru_minflt, now.ru_nvcsw - before.ru_nvcsw);
  before = now;
  since = at;
}

static void fill(double *a, long n, double by) {
  for (long i = 0; i < n; i++) a[i] = by * (double)(i % 1021) + 1;
}

static double sum(const double *a, long n) {
  double s = 0;
  for (long i = 0; i < n; i++) s += a[i];
  return s;
}

static double run_sum(long n) {
  double *a = array(n);
  fill(a, n, 0.5);
  phase("fill");
  double s = sum(a, n);
  phase("sum");
  return s;
}

static double run_triad(long n) {
  n /= 3;
  double *a = array(n), *b = array(n), *c = array(n);
  fill(b, n, 0.5);
  fill(c, n, 0.25);
  phase("fill");
  for (long i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
  phase("triad");
  return a[n / 2] + a[n - 1];
}

/* The four loops of STREAM, three times. */
static double run_stream(long n) {
  n /= 3;
  double *a = array(n), *b = array(n), *c = array(n);
  for (long i = 0; i < n; i++) a[i] = 1, b[i] = 2, c[i] = 0;
  phase("fill");
  for (int times = 0; times < 3; times++) {
    for (long i = 0; i < n; i++) c[i] = a[i];
    for (long i = 0; i < n; i++) b[i] = 3 * c[i];
    for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
    for (long i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
    phase("stream");
  }
  return a[n / 2] + b[1] + c[n - 1];
}

/* PolyBench's: y = A'(Ax). */
static double run_atax(long n) {
  long columns = 8192, rows = n / columns;
  double *a = array(rows * columns), *x = array(columns), *y = array(columns);
  for (long j = 0; j < columns; j++) x[j] = 1 + (double)j / (double)columns;
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++) a[i * columns + j] = (double)((i + j) % 1021) / 5;
  phase("fill");
  for (long j = 0; j < columns; j++) y[j] = 0;
  for (long i = 0; i < rows; i++) {
    double t = 0;
    for (long j = 0; j < columns; j++) t += a[i * columns + j] * x[j];
    for (long j = 0; j < columns; j++) y[j] += a[i * columns + j] * t;
  }
  phase("atax");
  return y[0] + y[columns - 1];
}

/* PolyBench's, two steps. */
static double run_jacobi(long n) {
  long columns = 4096, rows = n / 2 / columns;
  double *a = array(rows * columns), *b = array(rows * columns);
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++) {
      a[i * columns + j] = ((double)i * (double)(j + 2) + 2) / (double)columns;
      b[i * columns + j] = ((double)i * (double)(j + 3) + 3) / (double)columns;
    }
  phase("fill");
  for (int times = 0; times < 2; times++) {
    for (int half = 0; half < 2; half++) {
      const double *from = half ? b : a;
      double *to = half ? a : b;
      for (long i = 1; i < rows - 1; i++)
        for (long j = 1; j < columns - 1; j++)
          to[i * columns + j] = 0.2 * (from[i * columns + j] + from[i * columns + j - 1] + from[i * columns + j + 1] +
                                       from[(i + 1) * columns + j] + from[(i - 1) * columns + j]);
    }
    phase("step");
  }
  return a[(rows / 2) * columns + 5] + b[columns + 1];
}

/* PolyBench's: x1 += A y1, x2 += A' y2. */
static double run_mvt(long n) {
  long columns = 4096, rows = n / columns;
  double *a = array(rows * columns), *x1 = array(rows), *x2 = array(columns), *y1 = array(columns), *y2 = array(rows);
  for (long i = 0; i < rows; i++) x1[i] = (double)(i % 1021), y2[i] = (double)(i % 77);
  for (long j = 0; j < columns; j++) x2[j] = (double)(j % 31), y1[j] = (double)(j % 97);
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++) a[i * columns + j] = (double)((i * j) % 1021) / 7;
  phase("fill");
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++) x1[i] += a[i * columns + j] * y1[j];
  for (long i = 0; i < columns; i += 256)
    for (long j = 0; j < rows; j++) x2[i] += a[j * columns + i] * y2[j];
  phase("mvt");
  return x1[rows / 2] + x2[0] + x2[256];
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    double (*run)(long);
  } kernels[] = {{"sum", run_sum},   {"triad", run_triad},   {"stream", run_stream},
                 {"atax", run_atax}, {"jacobi", run_jacobi}, {"mvt", run_mvt}};
  for (unsigned i = 0; argc == 3 && i < sizeof kernels / sizeof *kernels; i++) {
    if (strcmp(argv[1], kernels[i].name)) continue;
    double start = begin(), result;
    phase(NULL);
    result = kernels[i].run(atol(argv[2]) * (1L << 17));
    double time = end(start);
    uint64_t bits;
    memcpy(&bits, &result, sizeof bits);
    printf("%016llx %.4f %.4f\n", (unsigned long long)bits, time, stalled);
    return 0;
  }
  fprintf(stderr, "usage: dense sum|triad|stream|atax|jacobi|mvt MEGABYTES\n");
  return 2;
}
