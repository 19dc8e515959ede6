/* The small kernels, as anyone would write them: no trace of prefetching. */
#include "kernels.h"

double gather(const double *a, const uint32_t *b, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += a[b[i]];
  return sum;
}

void spmv(double *y, const long *row, const uint32_t *column, const double *value,
          const double *x, long rows) {
  for (long i = 0; i < rows; i++) {
    double sum = 0;
    for (long j = row[i]; j < row[i + 1]; j++) sum += value[j] * x[column[j]];
    y[i] = sum;
  }
}

double column_walk(const double *a, long rows, long columns, long first, long count) {
  double sum = 0;
  for (long j = first; j < first + count; j++)
    for (long i = 0; i < rows; i++) sum += a[i * columns + j];
  return sum;
}

double sequential_sum(const double *a, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += a[i];
  return sum;
}

void matvec(double *y, const double *a, const double *x, long rows, long columns) {
  for (long i = 0; i < rows; i++) {
    double sum = 0;
    for (long j = 0; j < columns; j++) sum += a[i * columns + j] * x[j];
    y[i] = sum;
  }
}

void stencil(double *out, const double *in, long nx, long ny, long nz) {
  long row = nx, plane = nx * ny;
  for (long k = 1; k < nz - 1; k++)
    for (long j = 1; j < ny - 1; j++)
      for (long i = 1; i < nx - 1; i++) {
        long at = k * plane + j * row + i;
        out[at] = 0.4 * in[at] + 0.1 * (in[at - 1] + in[at + 1] + in[at - row] + in[at + row] +
                                        in[at - plane] + in[at + plane]);
      }
}
