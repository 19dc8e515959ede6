// A function whose labels have addresses cannot be kept aside, so it is left alone and said so.
// RUN: %plaincc -O2 -c %s -o %t.o -fpass-plugin=%plugin -Rpass=runahead -Rpass-missed=runahead 2>&1 | FileCheck %s
// CHECK: no prefetch in this function: it takes the addresses of labels
// CHECK-NOT: prefetch inserted
double interpret(const unsigned char *code, const double *a, long n) {
  static const void *const at[] = {&&sum, &&twice, &&end};
  double s = 0;
  goto *at[*code++];
sum:
  for (long i = 0; i < n; i++) s += a[i];
  goto *at[*code++];
twice:
  s *= 2;
  goto *at[*code++];
end:
  return s;
}
