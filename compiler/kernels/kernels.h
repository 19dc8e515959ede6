#ifndef KERNELS_H
#define KERNELS_H
#include <stddef.h>
#include <stdint.h>

double gather(const double *a, const uint32_t *b, long n);
void spmv(double *y, const long *row, const uint32_t *column, const double *value,
          const double *x, long rows);
double column_walk(const double *a, long rows, long columns, long first, long count);
double sequential_sum(const double *a, long n);
void matvec(double *y, const double *a, const double *x, long rows, long columns);
void stencil(double *out, const double *in, long nx, long ny, long nz);

/* map.c: a file in memory, by plain mmap or by runahead_ooc_map. */
void *map_data(const char *path, size_t bytes, int writable);
#endif
