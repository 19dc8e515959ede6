// Eigen as a user has it: dense products and decompositions, sparse solvers; what they give is printed.
#include <Eigen/Dense>
#include <Eigen/Sparse>
#include <cstdio>
#include <random>
#include <vector>
using namespace Eigen;

static std::mt19937 g(11);
static double next_value() { return (double)(g() % 2001) / 1000 - 1; }

template <typename M> static void say(const char *name, const M &m) {
  printf("%s %.15g %.15g %.15g\n", name, (double)m.sum(), (double)m.norm(), (double)m(m.rows() / 2, m.cols() / 2));
}

int main() {
  const int n = 150;
  MatrixXd a(n, n), b(n, n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) a(i, j) = next_value(), b(i, j) = next_value();
  MatrixXf f = a.cast<float>();
  say("product", a * b);
  say("float", f * f.transpose());
  say("coefficients", (a.array() * b.array() + a.array().square()).matrix());
  say("lu", a.partialPivLu().solve(b));
  say("qr", a.colPivHouseholderQr().solve(b));
  say("cholesky", (a * a.transpose() + n * MatrixXd::Identity(n, n)).eval().llt().solve(b));
  MatrixXd s = a + a.transpose();
  printf("eigenvalues %.10g\n", SelfAdjointEigenSolver<MatrixXd>(s).eigenvalues().cwiseAbs().sum());
  printf("singular %.10g\n", BDCSVD<MatrixXd>(a).singularValues().sum());
  const int m = 60;
  std::vector<Triplet<double>> t;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < m; j++) {
      int at = i * m + j;
      t.emplace_back(at, at, 4.1);
      if (i) t.emplace_back(at, at - m, -1), t.emplace_back(at - m, at, -1);
      if (j) t.emplace_back(at, at - 1, -1), t.emplace_back(at - 1, at, -1);
    }
  SparseMatrix<double> sparse(m * m, m * m);
  sparse.setFromTriplets(t.begin(), t.end());
  VectorXd rhs = VectorXd::LinSpaced(m * m, -1, 1);
  say("simplicial", SimplicialLDLT<SparseMatrix<double>>(sparse).solve(rhs).eval());
  SparseLU<SparseMatrix<double>> lu(sparse);
  say("sparselu", lu.solve(rhs).eval());
  ConjugateGradient<SparseMatrix<double>, Lower | Upper> cg(sparse);
  VectorXd x = cg.solve(rhs);
  say("cg", x);
  say("sparse product", (sparse * sparse * rhs).eval());
}
