#!/usr/bin/env python3
"""Random loop nests, compiled plainly and with the pass, must compute the same.

fuzz.py --build DIR [--programs N] [--seed S] [--keep DIR]

Each program has a dozen functions of random shape: one to four loops inside each
other or side by side, counting up or down by any step, with constant, symbolic and
triangular bounds, early exits, conditions, references that are affine, strided,
negative, indirect (with offsets), stores that alias loads, sparse rows, calls of functions
that are not inlined. They run over
out-of-core memory that is declared tiny, so that the run-time layer takes every
nest for out of core, and over memory that it knows nothing of.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

SIZE = 200_000  # elements of each array
LONGEST_CALL = 200  # elements that a called function goes through, to either side
CALLED = """
#define CALLED __attribute__((noinline)) static
CALLED double sum(const double *p, long n, long step) { double s = 0; for (long i = 0; i < n; i++) s = s * 0.5 + p[i * step]; return s; }
CALLED double range(const double *p, const double *end) { double s = 0; for (; p < end; p++) s = s * 0.5 + *p; return s; }
CALLED void put(double *p, int n, double v) { for (int i = n - 1; i >= 0; i -= 2) p[i] = p[i] * 0.5 + v; }
CALLED double square(const double *p, long rows, long n) { double s = 0; for (long j = 0; j < rows; j++) for (long i = 0; i <= j; i++) s = s * 0.5 + p[j * n + i]; return s; }
CALLED double get(const double *p, unsigned i) { return i % 3 ? p[i] + p[i + 1] : p[i]; }
CALLED double look(const double *p, const int *at, long i) { return p[at[i]]; }
"""
FLAGS = [["-O1"], ["-O2"], ["-O3"], ["-O2", "-march=native"], ["-O3", "-fwrapv"], ["-Os"],
         ["-O2", "-fno-vectorize"]]


class Function:
    """One nest; `text` and the call with its actual arguments."""

    def __init__(self, rng, number):
        self.rng, self.number = rng, number
        self.parameters = []  # (name, value) of symbolic longs
        self.body = []
        self.loops = []  # (variable, smallest, greatest value)
        self.unsigned = rng.random() < 0.2

    def symbol(self, value):
        """The value, as a literal or through a parameter."""
        if self.rng.random() < 0.5:
            return str(value)
        name = f"p{len(self.parameters)}"
        self.parameters.append((name, value))
        return name

    def index(self, low=0, high=SIZE):
        """An affine expression in [low, high) and whether it uses any loop."""
        rng = self.rng
        terms, least, most = [], 0, 0
        for variable, small, great in self.loops:
            if rng.random() < 0.25:
                continue
            c = rng.choice([1, 1, 1, 2, 3, 8, -1, -2, 64, 500, 512, 1000, 4096])
            a, b = sorted((c * small, c * great))
            if most - least + b - a >= high - low - 1:
                c = 1
                a, b = small, great
                if most - least + b - a >= high - low - 1:
                    continue
            least, most = least + a, most + b
            terms.append(f"{self.symbol(c)} * {variable}")
        offset = low - least + rng.randrange(max(1, high - low - (most - least)))
        terms.append(self.symbol(offset))
        rng.shuffle(terms)
        return " + ".join(terms)

    def reference(self):
        rng = self.rng
        array = rng.choice("abc")
        if rng.random() < 0.35:
            which = rng.choice("xy")
            c = rng.choice(["", f" + {rng.randrange(4)}"])
            if rng.random() < 0.2:  # an index found through an index
                return f"{array}[x[{which}[{self.index(0, SIZE - 4)}]{c}]]"
            return f"{array}[{which}[{self.index(0, SIZE - 4)}]{c}]"
        return f"{array}[{self.index()}]"

    def called(self):
        """A call that goes through a piece of an array; how far may depend on a loop."""
        rng = self.rng
        at = f"{rng.choice('abc')} + {self.index(LONGEST_CALL, SIZE - LONGEST_CALL)}"
        n = self.symbol(rng.choice([0, 1, 7, LONGEST_CALL // 2, LONGEST_CALL]))
        if rng.random() < 0.2 and self.loops:
            n = f"({self.loops[-1][0]} & 127)"
        kind = rng.choice(["sum", "sum", "range", "put", "square", "get", "look", "gather"])
        if kind == "sum":
            return f"s += sum({at}, {n}, {self.symbol(rng.choice([1, 1, -1]))});"
        if kind == "range":
            array, place = at.split(" + ", 1)
            return f"{{ long p = {place}; s += range({array} + p, {array} + p + {n}); }}"
        if kind == "put":
            return f"put({at}, (int){n}, s * 1e-6);"
        if kind == "square":
            return f"s += square({at}, {self.symbol(rng.randrange(9))}, {self.symbol(20)});"
        if kind == "get":
            return f"s += get({rng.choice('abc')}, {self.index(0, SIZE - 1)});"
        if kind == "look":
            return f"s += look({rng.choice('abc')}, {rng.choice('xy')}, {self.index()});"
        return f"s += get({rng.choice('abc')}, {rng.choice('xy')}[{self.index()}]);"

    def statement(self, depth):
        rng = self.rng
        kind = rng.random()
        pad = "  " * (depth + 1)
        if kind < 0.45:
            self.body.append(f"{pad}s = s * 0.75 + {self.reference()};")
        elif kind < 0.75:
            self.body.append(f"{pad}{self.reference()} = {self.reference()} * 0.5 + {self.reference()} - s * 1e-6;")
        elif kind < 0.81:
            self.body.append(f"{pad}{self.called()}")
        elif kind < 0.87:
            self.body.append(f"{pad}if ({self.reference()} > {rng.randrange(1000)}.5) s += {self.reference()};")
        elif kind < 0.91:
            self.body.append(f"{pad}if ({self.reference()} < -1e200) return s;")
        elif kind < 0.95 and self.loops:
            self.body.append(f"{pad}if ({self.reference()} > 1000000.5 - {rng.randrange(1500)}) break;")
        else:
            self.body.append(f"{pad}t += (unsigned long)x[{self.index()}];")

    def loop(self, depth, work):
        rng = self.rng
        v = f"i{len(self.loops)}"
        most = max(2, int(work ** (1 / rng.choice([1, 2, 2, 3]))))
        count = rng.choice([rng.randrange(1, 9), rng.randrange(1, most + 1), most])
        step = rng.choice([1, 1, 1, 1, 2, 3, 7])
        pad = "  " * (depth + 1)
        kind = rng.random()
        if kind < 0.12 and self.loops:  # triangular
            outer, small, great = self.loops[-1]
            great = max(great, 0)
            self.body.append(f"{pad}for ({self.type()} {v} = 0; {v} <= {outer}; {v}++) {{")
            self.loops.append((v, 0, great))
            count = great + 1
        elif kind < 0.25:
            self.body.append(f"{pad}for (long {v} = {self.symbol((count - 1) * step)}; {v} >= 0; {v} -= {step}) {{")
            self.loops.append((v, 0, (count - 1) * step))
        elif kind < 0.33:
            self.body.append(f"{pad}for (long {v} = -1; ++{v} < {self.symbol(count)};) {{")
            self.loops.append((v, 0, count - 1))
        elif kind < 0.45 and depth > 0:  # a sparse row
            self.body.append(f"{pad}for (long {v} = row[{self.index()}], e{v} = {v} + {self.symbol(count)}; {v} < e{v}; {v}++) {{")
            self.loops.append((v, 0, SIZE // 2 + count))
        else:
            start = rng.randrange(3)
            self.body.append(f"{pad}for ({self.type()} {v} = {start}; {v} < {self.symbol(start + count * step)}; {v} += {self.symbol(step)}) {{")
            self.loops.append((v, start, start + count * step))
        work = work // max(1, count)
        for _ in range(rng.choice([1, 1, 2])):
            if rng.random() < 0.4:
                self.statement(depth + 1)
            if work > 1 and len(self.loops) < 4 and rng.random() < 0.75:
                self.loop(depth + 1, work)
        self.statement(depth + 1)
        self.loops.pop()
        self.body.append(f"{pad}}}")

    def type(self):
        if self.unsigned:
            return "unsigned long"
        return self.rng.choice(["long", "long", "int", "unsigned"])

    def text(self):
        for _ in range(self.rng.choice([1, 1, 2])):
            self.loop(0, self.rng.choice([2000, 50_000, 150_000]))
        arguments = "".join(f", long {n}" for n, _ in self.parameters)
        return (f"__attribute__((noinline)) static double f{self.number}(double *a, double *b, double *c, "
                f"const int *x, const int *y, const long *row{arguments}) {{\n"
                f"  double s = 0; unsigned long t = 0;\n" + "\n".join(self.body) +
                "\n  return s + (double)t;\n}\n")

    def call(self):
        return "".join(f", {v}" for _, v in self.parameters)


def program(rng):
    functions = [Function(rng, i) for i in range(12)]
    texts = [f.text() for f in functions]
    calls = []
    for f in functions:
        where = rng.choice(["a, b, c", "a, a, b", "h, b, c", "h, h, h", "a, b, b"])
        calls.append(f'  show({f.number}, f{f.number}({where}, x, y, row{f.call()}));')
    return f"""#include "runahead_ooc.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SIZE {SIZE}
{CALLED}
{''.join(texts)}
static void show(int i, double v) {{ uint64_t b; memcpy(&b, &v, 8); printf("%d %016lx\\n", i, (unsigned long)b); fflush(stdout); }}
int main(void) {{
  double *a = runahead_ooc_alloc(SIZE * 8, NULL), *b = runahead_ooc_alloc(SIZE * 8, NULL),
         *c = runahead_ooc_alloc(SIZE * 8, NULL), *h = malloc(SIZE * 8);
  int *x = runahead_ooc_alloc(SIZE * 4, NULL), *y = malloc(SIZE * 4);
  long *row = runahead_ooc_alloc(SIZE * 8, NULL);
  if (!a || !b || !c || !h || !x || !y || !row) return 1;
  uint64_t s = {rng.randrange(1, 2**60)}u;
  for (long i = 0; i < SIZE; i++) {{
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    a[i] = (double)(s % 1000), b[i] = (double)(s >> 30 & 1023), c[i] = (double)i, h[i] = 1.5 * (double)(s & 255);
    x[i] = (int)(s % (SIZE - 8)), y[i] = (int)((s >> 20) % (SIZE - 8)), row[i] = i / 2;
  }}
{chr(10).join(calls)}
  uint64_t sum = 0, v;
  for (long i = 0; i < SIZE; i++) {{
    memcpy(&v, &a[i], 8); sum = sum * 31 + v; memcpy(&v, &b[i], 8); sum = sum * 31 + v;
    memcpy(&v, &c[i], 8); sum = sum * 31 + v; memcpy(&v, &h[i], 8); sum = sum * 31 + v;
  }}
  printf("memory %016lx\\n", (unsigned long)sum);
  return 0;
}}
"""


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--build", required=True)
    options.add_argument("--programs", type=int, default=20)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep")
    options.add_argument("--break-it", action="store_true",
                         help="compare with another program: the comparison has to fail")
    o = options.parse_args()
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime")
    wrapper = os.path.join(o.build, "bin", "runahead-cc")
    work = o.keep or tempfile.mkdtemp(prefix="runahead-fuzz-")
    os.makedirs(work, exist_ok=True)
    failures = inserted = entered = skipped = 0
    for n in range(o.programs):
        rng = random.Random(o.seed * 1_000_003 + n)
        text = program(rng)
        flags = rng.choice(FLAGS)
        c = os.path.join(work, "p.c")
        with open(c, "w") as f:
            f.write(text)
        plain, ooc = os.path.join(work, "plain"), os.path.join(work, "ooc")
        build = ["-w", "-I", source, *flags, c, "-o"]
        library = [os.path.join(o.build, "librunahead_ooc.a"), "-lpthread"]
        first = run([wrapper, "--runahead-off", *build, plain, *library])
        second = run([wrapper, "-Rpass=runahead", *build, ooc])
        if first.returncode or second.returncode:
            print(f"program {n} {flags}: does not compile\n{first.stderr[-2000:]}{second.stderr[-2000:]}")
            failures += 1
        else:
            inserted += second.stderr.count("prefetch inserted")
            environment = dict(os.environ, RUNAHEAD_OOC_DIR=work, RUNAHEAD_OOC_STATS="1")
            if o.break_it:
                with open(c, "w") as f:
                    f.write(text.replace("s * 0.75", "s * 0.7500001"))
                run([wrapper, *build, ooc])
            try:
                one = run([plain], env=environment, timeout=20)
            except subprocess.TimeoutExpired:
                skipped += 1  # too long a program says nothing
                continue
            for memory in ("1000000", "20000000"):
                try:
                    two = run([ooc], env=dict(environment, RUNAHEAD_OOC_MEMORY=memory), timeout=240)
                except subprocess.TimeoutExpired:
                    two = None
                if not two or one.returncode != two.returncode or one.stdout != two.stdout:
                    failures += 1
                    kept = os.path.join(work, f"failed-{o.seed}-{n}.c")
                    with open(kept, "w") as f:
                        f.write(text)
                    print(f"program {n} {flags}, memory {memory}: "
                          f"{'timed out' if not two else 'results differ'}; kept {kept}")
                    break
                entered += sum(map(int, re.findall(r"nests entered (\d+)", two.stderr)))
    done = o.programs - skipped
    print(f"{inserted} nests transformed in {done} programs, entered {entered} times, {skipped} skipped")
    print(f"{done - failures} passed, {failures} failed")
    sys.exit(failures > 0 or inserted == 0 or (entered == 0 and not o.break_it))


if __name__ == "__main__":
    main()
