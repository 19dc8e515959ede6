#include <cstdio>
#include <vector>
extern "C" double sum(const double *a, long n);
int main() {
  std::vector<double> a(2000000);
  for (long i = 0; i < 2000000; i++) a[i] = double(i);
  std::printf("%.0f\n", sum(a.data(), 2000000));
}
