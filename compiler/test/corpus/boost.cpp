// Boost as a user has it: graphs, matrices, containers, big numbers; what they give is printed.
#include <boost/container/flat_map.hpp>
#include <boost/container/stable_vector.hpp>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/connected_components.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/kruskal_min_spanning_tree.hpp>
#include <boost/graph/page_rank.hpp>
#include <boost/math/special_functions/bessel.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <boost/multi_array.hpp>
#include <boost/multi_index/hashed_index.hpp>
#include <boost/multi_index/identity.hpp>
#include <boost/multi_index/ordered_index.hpp>
#include <boost/multi_index_container.hpp>
#include <boost/multiprecision/cpp_int.hpp>
#include <boost/numeric/odeint.hpp>
#include <boost/numeric/ublas/lu.hpp>
#include <boost/numeric/ublas/matrix.hpp>
#include <boost/numeric/ublas/matrix_sparse.hpp>
#include <boost/numeric/ublas/vector.hpp>
#include <boost/sort/sort.hpp>
#include <cstdio>
#include <random>
#include <vector>

static std::mt19937 g(7);
static double next_value() { return (double)(g() % 2001) / 1000 - 1; }

static void graphs() {
  using namespace boost;
  using Graph = adjacency_list<vecS, vecS, undirectedS, no_property, property<edge_weight_t, double>>;
  const int n = 2000;
  Graph graph(n);
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < 3 * n; i++) {
    int a = g() % n, b = g() % n;
    add_edge(a, b, 0.5 + g() % 1000, graph);
    pairs.push_back({a, b});
  }
  std::vector<double> far(n);
  std::vector<int> part(n);
  auto place = get(vertex_index, graph);
  dijkstra_shortest_paths(graph, 0, distance_map(make_iterator_property_map(far.begin(), place)));
  double sum = 0, tree = 0;
  for (double d : far) sum += d < 1e9 ? d : 0;
  std::vector<graph_traits<Graph>::edge_descriptor> edges;
  kruskal_minimum_spanning_tree(graph, std::back_inserter(edges));
  for (auto e : edges) tree += get(edge_weight, graph, e);
  int parts = connected_components(graph, make_iterator_property_map(part.begin(), place));
  printf("graph %.17g %d %.17g\n", sum, parts, tree);
  using Directed = adjacency_list<vecS, vecS, bidirectionalS>;
  Directed web(pairs.begin(), pairs.end(), n);
  std::vector<double> rank(n);
  auto index = get(vertex_index, web);
  graph::page_rank(web, make_iterator_property_map(rank.begin(), index), graph::n_iterations(15));
  printf("rank %.17g %.17g\n", rank[0], rank[n / 2]);
  compressed_sparse_row_graph<directedS> rows(edges_are_unsorted_multi_pass, pairs.begin(), pairs.end(), n);
  unsigned long heads = 0;
  for (unsigned long v = 0; v < n; v++)
    for (auto [e, end] = boost::out_edges(v, rows); e != end; ++e) heads = heads * 31 + target(*e, rows);
  printf("rows %lu\n", heads);
}

static void matrices() {
  namespace ublas = boost::numeric::ublas;
  const int n = 90;
  ublas::matrix<double> a(n, n), b(n, n);
  ublas::compressed_matrix<double> s(n, n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      a(i, j) = next_value() + (i == j) * 20, b(i, j) = next_value();
      if ((i * 7 + j) % 11 == 0) s(i, j) = next_value();
    }
  ublas::matrix<double> product = prod(a, b), of_sparse = prod(s, b);
  ublas::permutation_matrix<> order(n);
  lu_factorize(a, order);
  lu_substitute(a, order, b);
  printf("ublas %.17g %.17g %.17g\n", double(norm_frobenius(product)), double(norm_1(of_sparse)), double(norm_inf(b)));
  boost::multi_array<float, 3> cube(boost::extents[40][50][60]);
  for (int i = 0; i < 40; i++)
    for (int j = 0; j < 50; j++)
      for (int k = 0; k < 60; k++) cube[i][j][k] = i * j - k;
  double sum = 0;
  for (int k = 0; k < 60; k += 3)
    for (int i = 0; i < 40; i++)
      for (int j = 0; j < 50; j++) sum += cube[i][j][k] * (k + 1);
  printf("cube %.17g\n", sum);
}

static void containers() {
  boost::container::flat_map<unsigned, double> flat;
  boost::container::stable_vector<int> stable;
  using namespace boost::multi_index;
  multi_index_container<unsigned, indexed_by<hashed_unique<identity<unsigned>>, ordered_unique<identity<unsigned>>>> both;
  for (int i = 0; i < 8000; i++) {
    flat[g() % 5000] += next_value();
    stable.insert(stable.begin() + g() % (stable.size() + 1), i);
    both.insert(g() % 6000);
  }
  double sum = 0;
  for (auto &[key, value] : flat) sum += key * value;
  unsigned long places = 0, kept = 0;
  for (int i : stable) places = places * 31 + i;
  for (unsigned i : both.get<1>()) kept = kept * 31 + i;
  std::vector<unsigned> numbers(60000);
  std::vector<std::string> words(8000);
  for (auto &v : numbers) v = g();
  for (auto &w : words) w = std::to_string(g() % 100000);
  auto again = numbers;
  boost::sort::spreadsort::integer_sort(numbers.begin(), numbers.end());
  boost::sort::spreadsort::string_sort(words.begin(), words.end());
  boost::sort::pdqsort(again.begin(), again.end());
  printf("containers %.17g %lu %lu %u %s %d\n", sum, places, kept, numbers[30000], words[4000].c_str(), again == numbers);
}

static void numbers() {
  boost::multiprecision::cpp_int f = 1;
  for (int i = 2; i < 900; i++) f *= i;
  boost::multiprecision::cpp_int high = (f >> 4000) + f % 1000000007;
  printf("big %s\n", high.str().substr(0, 60).c_str());
  double sum = 0;
  for (int i = 1; i < 300; i++) sum += boost::math::cyl_bessel_j(i % 7, i * 0.1) + boost::math::tgamma(1 + i * 0.05);
  printf("special %.15g\n", sum);
  using State = std::vector<double>;
  State x(400, 0.0);
  x[200] = 1;
  boost::numeric::odeint::runge_kutta4<State> stepper;
  auto heat = [](const State &y, State &d, double) {
    for (size_t i = 1; i + 1 < y.size(); i++) d[i] = y[i - 1] - 2 * y[i] + y[i + 1];
  };
  boost::numeric::odeint::integrate_const(stepper, heat, x, 0.0, 20.0, 0.1);
  printf("heat %.17g %.17g\n", x[200], x[230]);
}

int main() {
  graphs();
  matrices();
  containers();
  numbers();
}
