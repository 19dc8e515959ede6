double sum(const double *a, long n) {
  double s = 0;
  for (long i = 0; i < n; i++) s += a[i];
  return s;
}
#ifdef CALLS
#include <runahead_ooc.h>
int main(void) {
  double *a = runahead_ooc_alloc(1 << 20, 0);
  if (!a) return 1;
  a[7] = 2;
  return sum(a, 100) != 2 || runahead_ooc_unmap(a, 1 << 20);
}
#endif
