#!/usr/bin/env python3
"""Public programs, compiled plainly and with the pass at three levels, must compile, verify and
print the same.

corpus.py --build DIR --sources DIR [--source NAME=DIR...] [--levels O1,O2,O3] [--home eager|normal]
          [--seconds T] [NAME...]
corpus.py packages      the Debian source packages that it wants

`--sources` holds unpacked source packages by their names; what is in no package of Debian
(ELSEWHERE, PolyBenchC) is looked for there as well or given by `--source`. What is not
there is said and left out. With the pass the program's heap (heap.c) and its static arrays lie
on files, with less memory than they take, and by default the eager build is used, to which no
nest is too small.
"""
import argparse
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ELSEWHERE = ["NPB-CPP", "gapbs", "hnswlib", "annoy"]
# $P the program, $D a file of 200 KB, $S its source, $T an empty folder.
ROUND = ("for l in {levels}; do $P {pack} | tee $T/packed | cksum; "
         "$P {unpack} | cmp - $D && echo same $l; done")
SQL = """create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i < 20000)
insert into t select i, hex(i*7919 % 10007) || 'x', i*0.37 from n;
create index tb on t(b); create index tc on t(c, a);
select count(*), sum(a), total(c), min(b), max(b) from t;
select b, count(*) from t group by b having count(*) > 1 order by 2 desc, 1 limit 20;
select x.a, y.b from t x join t y on y.a = x.a * 3 where x.b like '%A%x' order by x.c desc limit 40;
with recursive f(i, a, b) as (select 1, 0, 1 union all select i+1, b, (a+b) % 1000003 from f where i < 5000) select sum(a) from f;
update t set b = upper(b) || a where a % 3 = 0; delete from t where a % 7 = 1; vacuum;
select count(*), sum(length(b)), group_concat(a % 10) from (select * from t order by b limit 500);
pragma integrity_check;
"""
LUA = """local t = {} for i = 1, 20000 do t[i] = (i * 7919) % 10007 end
table.sort(t) local s = {} for i = 1, #t, 13 do s[#s+1] = tostring(t[i]) end
local text = table.concat(s, ",") print(#text, text:sub(1, 80), select(2, text:gsub("%d+1", "%0%0")))
local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end print(fib(22))
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i*i) end end)
local sum = 0 for i = 1, 1000 do sum = sum + co() end print(sum, string.format("%.14g", math.sqrt(sum)))
local m = {} for i = 1, 80 do m[i] = {} for j = 1, 80 do m[i][j] = i * j % 17 + 0.5 end end
local r = 0 for i = 1, 80 do for j = 1, 80 do for k = 1, 80 do r = r + m[i][k] * m[k][j] end end end print(r)
print(load(string.dump(function(x) return x * 2 end))(21), utf8.char(228, 8364, 120000), #string.rep("ab", 300000))
"""

POINTS = """BEGIN { srand(5); print d; print 250
for (i = 0; i < 250; i++) { for (j = 0; j < d; j++) printf "%.6f ", rand(); print "" } }
"""
AWK = """{ for (i = 1; i <= NF; i++) n[$i]++ }
END { for (w in n) print n[w], w
for (i = 0; i < 20000; i++) { a[i % 503] += i; s = s substr(i, 1, 1) }
for (i in a) t += a[i] * i; print t, length(s); gsub(/1+2/, "x", s); print length(s), substr(s, 1, 100) }
"""


class Program:
    """`sources` and `include` are patterns below the package's folder; `prepare` is a shell
    command that is run there once; each line that `filter` matches is not compared."""

    def __init__(self, name, package, sources, run, flags=(), include=(), without=(), prepare=None,
                 libraries=("-lm",), filter=None):
        self.__dict__.update(locals())
        endings = {os.path.splitext(s)[1] for s in sources}
        self.compiler = "runahead-c++" if endings & {".cpp", ".cc"} else "runahead-fc" if ".f" in endings else "runahead-cc"


def programs():
    yield Program("lz4", "lz4", ["lib/*.c", "programs/*.c"], include=["lib", "programs"],
                  run=ROUND.format(levels="1 9", pack="-$l -c $D", unpack="-dc < $T/packed"))
    yield Program("lz4-fuzzer", "lz4", ["lib/*.c", "tests/fuzzer.c"], include=["lib", "programs"],
                  run="$P -i60 -s5 -t0 >$T/said 2>&1; echo $?")
    yield Program("bzip2", "bzip2", ["blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c",
                                     "decompress.c", "bzlib.c", "bzip2.c"], flags=["-D_FILE_OFFSET_BITS=64"],
                  run="for n in 1 2 3; do $P -$n < $S/sample$n.ref | cmp - $S/sample$n.bz2 && echo same; "
                      "$P -d < $S/sample$n.bz2 | cmp - $S/sample$n.ref && echo same; done; "
                      "$P -9 < $D | cksum")
    yield Program("zlib-minigzip", "zlib", ["*.c", "test/minigzip.c"], include=["."],
                  flags=["-DHAVE_UNISTD_H", "-include", "unistd.h"],
                  run=ROUND.format(levels="1 9", pack="-$l < $D", unpack="-d < $T/packed"))
    yield Program("zlib-example", "zlib", ["*.c", "test/example.c"], include=["."],
                  flags=["-DHAVE_UNISTD_H", "-include", "unistd.h"], run="cd $T && $P")
    yield Program("libpng", "libpng1.6", ["png*.c", "../zlib/*.c"], include=[".", "../zlib"],
                  flags=["-DPNG_INTEL_SSE_OPT=0", "-DHAVE_UNISTD_H", "-include", "unistd.h"],
                  prepare="cp scripts/pnglibconf.h.prebuilt pnglibconf.h",
                  run="cd $T && $P $S/pngtest.png out.png && cksum out.png")
    yield Program("lua", "lua5.4", ["src/*.c"], without=["src/luac.c"], include=["src"],
                  flags=["-DLUA_USE_POSIX", "-std=gnu99"],
                  prepare="echo '#define DEB_HOST_MULTIARCH \"x\"' > src/lua5.4-deb-multiarch.h; "
                          f"cat > corpus.lua <<'END'\n{LUA}END\n", run="$P $S/corpus.lua")
    yield Program("zstd", "libzstd", ["lib/common/*.c", "lib/compress/*.c", "lib/decompress/*.c",
                                      "lib/dictBuilder/*.c", "programs/*.c"], include=["lib", "lib/common", "lib/dictBuilder"],
                  flags=["-DZSTD_DISABLE_ASM", "-DXXH_NAMESPACE=ZSTD_", "-DZSTD_MULTITHREAD=0"],
                  run=ROUND.format(levels="1 19", pack="-q -$l -c $D", unpack="-q -dc < $T/packed"))
    yield Program("sqlite3", "sqlite3", ["corpus/sqlite3.c", "corpus/shell.c"], include=["corpus"],
                  flags=["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"],
                  prepare="[ -e corpus/shell.c ] || { mkdir -p corpus && cd corpus && ../configure && "
                          "make sqlite3.c shell.c; }; "
                          f"cd $S/corpus && cat > corpus.sql <<'END'\n{SQL}END\n",
                  run="$P $T/db < $S/corpus/corpus.sql; $P :memory: < $S/corpus/corpus.sql")
    # A part of the data: with nests of any size each match that is looked for is one.
    yield Program("brotli", "brotli", ["c/common/*.c", "c/dec/*.c", "c/enc/*.c", "c/tools/brotli.c"], include=["c/include"],
                  run="head -c 30000 $D > $T/part; for l in 1 5 9; do $P -q $l -c $T/part | tee $T/packed | cksum; "
                      "$P -dc < $T/packed | cmp - $T/part && echo same $l; done")
    yield Program("zopfli", "zopfli", ["src/zopfli/*.c"],
                  run="head -c 6000 $D > $T/part; for how in --zlib --deflate --gzip; do $P -c --i2 $how $T/part | "
                      "tee $T/packed | cksum; done; gzip -dc < $T/packed | cmp - $T/part && echo same")
    yield Program("qhull", "qhull", ["src/libqhull_r/*.c", "src/qhull/unix_r.c"], include=["src"],
                  prepare=f"cat > points.awk <<'END'\n{POINTS}END\n",
                  run="for d in 2 3; do awk -v d=$d -f $S/points.awk > $T/points; $P s FA o < $T/points | cksum; "
                      "$P d Qbb s FN < $T/points | cksum; $P v Qbb p < $T/points | cksum; done")
    yield Program("gzip", "gzip", ["bits.c", "deflate.c", "gzip.c", "inflate.c", "lzw.c", "trees.c", "unlzh.c", "unlzw.c",
                                   "unpack.c", "unzip.c", "util.c", "zip.c", "version.c"], include=[".", "lib"],
                  flags=["-DHAVE_CONFIG_H"], libraries=["{folder}/lib/libgzip.a"],
                  # Made by autotools that need not be here.
                  prepare="[ -e version.h ] || { touch aclocal.m4 && sleep 1 && touch configure lib/config.hin Makefile.in "
                          "*/Makefile.in && ./configure -q && make -s -C lib && make -s version.c version.h; }",
                  run=ROUND.format(levels="1 6 9", pack="-$l -c $D", unpack="-dc < $T/packed"))
    yield Program("mawk", "mawk", ["*.c"], without=["rexpdb.c", "makescan.c", "trace.c", "fpe_check.c"], include=["."],
                  flags=["-DHAVE_CONFIG_H"], prepare="[ -e scancode.c ] || { ./configure && make; }",
                  run=f"cat > $T/long.awk <<'END'\n{AWK}END\n"
                      "cp -r $S/test $T/t; (cd $T/t && cp $P mawk && PROG=./mawk sh ./mawktest); "
                      "$P -f $T/long.awk $D | sort | cksum", filter="wall|user|sys|rss")
    yield Program("hnswlib", "hnswlib", [f"{HERE}/hnsw.cpp"], include=["."], flags=["-std=c++14", "-pthread"],
                  libraries=["-lpthread"], run="$P $T/index")
    yield Program("annoy", "annoy", [f"{HERE}/annoy.cpp"], include=["src"], flags=["-std=c++14"], run="$P $T/index")
    yield Program("eigen", "eigen3", [f"{HERE}/eigen.cpp"], include=["."], flags=["-std=c++14"], run="$P")
    yield Program("boost", "boost1.81", [f"{HERE}/boost.cpp"], include=["all"], flags=["-std=c++17"],
                  # Headers of each library lie in a folder of its own.
                  prepare="[ -d all ] || { mkdir all.new && for i in libs/*/include libs/numeric/*/include; do "
                          "cp -rsn $S/$i/. all.new; done; mv all.new all; }", run="$P")
    for kind, names in {"s": "s sc is", "d": "d id", "c": "c sc ic", "z": "z dz dc iz"}.items():
        blas = [f"BLAS/SRC/{name}*.{ending}" for name in names.split() + ["l"] for ending in ("f", "f90")]
        for level in "123":
            test = f"BLAS/TESTING/{kind}blat{level}"
            own = ["BLAS/SRC/xerbla.f"] if level == "1" else []
            yield Program(f"blas-{kind}{level}", "lapack", [*blas, *own, test + ".f"], libraries=[],
                          run="cd $T && $P" + (f" < $S/{test}.in; cat *" if level > "1" else ""), filter="(?i)time|second")
    for name in ["is", "ep", "cg", "mg", "ft", "bt", "sp", "lu"]:
        folder = f"NPB-SER/{name.upper()}"
        yield Program(f"npb-{name}", "NPB-CPP", [f"{folder}/{name}.cpp", "NPB-SER/common/*.cpp"],
                      include=[folder, "NPB-SER/common"], without=["NPB-SER/common/wtime_sgi64.cpp"],
                      flags=["-mcmodel=medium", "-std=c++14"],
                      prepare="cd NPB-SER/sys && c++ -w setparams.cpp -o setparams && "
                              f"cd ../{name.upper()} && ../sys/setparams {name} S",
                      run="$P", filter="(?i)time|mop|second|date|compil|total")
    for name in ["bfs", "cc", "bc", "pr", "sssp", "tc"]:
        yield Program(f"gap-{name}", "gapbs", [f"src/{name}.cc"], flags=["-std=c++11"],
                      run="$P -g 9 -n 2 -v", filter="(?i)time|read|build|average|generate|trial")


def polybench(folder):
    with open(f"{folder}/utilities/benchmark_list") as f:
        for line in f:
            path = line.strip()
            if path:
                yield Program("poly-" + os.path.basename(path)[:-2], "PolyBenchC",
                              ["utilities/polybench.c", path], include=["utilities", os.path.dirname(path)],
                              flags=["-DPOLYBENCH_DUMP_ARRAYS", "-DSMALL_DATASET"],
                              run="$P 2>&1 | grep -v '^runahead: ' | cksum")


def shell(command, folder, variables, seconds=300):
    try:
        return subprocess.run(["bash", "-c", command], cwd=folder, env=dict(os.environ, **variables),
                              timeout=seconds, capture_output=True)
    except subprocess.TimeoutExpired:
        return None


class Corpus:
    def __init__(self, options, work):
        self.o, self.work = options, work
        self.inserted = self.entered = self.compared = self.files = 0
        self.failed, self.absent = [], []
        self.data = os.path.join(work, "data")
        rng = random.Random(11)
        words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randrange(2, 9))) for _ in range(3000)]
        with open(self.data, "wb") as f:
            while f.tell() < 160_000:
                f.write((" ".join(rng.choice(words) for _ in range(300)) + "\n").encode())
            f.write(rng.randbytes(40_000))

    def fail(self, what, said=""):
        self.failed.append(what)
        print(f"FAILED {what}\n{said[-1500:]}", flush=True)

    def environment(self, ours):
        if not ours:
            return {}
        home = self.o.build if self.o.home == "normal" else os.path.join(self.o.build, "eager")
        return {"RUNAHEAD_COMPILER_HOME": home, "RUNAHEAD_OOC_DIR": self.work,
                "RUNAHEAD_OOC_MEMORY": "2000000"}

    def build(self, p, folder, level, ours, out):
        """None where it fails."""
        compiler = os.path.join(self.o.build, "bin", p.compiler)
        sources = sorted({s for pattern in p.sources for s in glob.glob(os.path.join(folder, pattern))} -
                         {os.path.join(folder, w) for w in p.without})
        how = ["-Rpass=runahead", "-Rpass-missed=runahead"] if ours else ["--runahead-off"]
        objects = []
        environment = dict(os.environ, **self.environment(ours))
        for source in sources:
            objects.append(os.path.join(self.work, f"{len(objects)}.o"))
            done = subprocess.run([compiler, "-" + level, "-w", *how, *p.flags,
                                   *("-I" + os.path.join(folder, i) for i in p.include),
                                   "-c", source, "-o", objects[-1]],
                                  capture_output=True, text=True, env=environment)
            if done.returncode:
                return self.fail(f"{p.name} -{level} {'ours' if ours else 'plain'}: {source}", done.stderr)
            if ours:
                self.files += 1
                self.inserted += done.stderr.count("prefetch inserted for")
                if "did not verify" in done.stderr:
                    self.fail(f"{p.name} -{level}: {source}: a function did not verify", done.stderr[:300])
        how = ["--runahead-static", self.heap] if ours else ["--runahead-off"]
        libraries = [l.format(folder=folder) for l in p.libraries]
        done = subprocess.run([compiler, *how, *objects, "-o", out, *libraries], capture_output=True, text=True,
                              env=environment)
        return True if done.returncode == 0 else self.fail(f"{p.name} -{level}: link", done.stderr)

    def run(self, p, folder, program, ours):
        scratch = os.path.join(self.work, "scratch")
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch)
        variables = {"P": program, "D": self.data, "S": folder, "T": scratch, **self.environment(ours)}
        if ours:
            variables["RUNAHEAD_OOC_STATS"] = "1"
        done = shell(p.run, scratch, variables)
        if done is None:
            return None
        said = done.stderr.decode(errors="replace")
        if ours:
            self.entered += sum(map(int, re.findall(r"nests entered (\d+)", said)))
        lines = done.stdout.decode(errors="replace").splitlines()
        return done.returncode, [l for l in lines if not (p.filter and re.search(p.filter, l))
                                 and not l.startswith("runahead: ")]

    def program(self, p):
        folder = self.o.where.get(p.package) or os.path.join(self.o.sources, p.package)
        if not os.path.isdir(folder):
            if p.package not in self.absent:
                self.absent.append(p.package)
                print(f"going on without {p.package}", flush=True)
            return
        if p.prepare:
            done = shell(p.prepare, folder, {"S": folder})
            if done is None or done.returncode:
                said = done.stderr.decode(errors="replace") if done else ""
                return self.fail(f"{p.name}: preparation", said)
        plain, ours = os.path.join(self.work, "plain"), os.path.join(self.work, "ours")
        for level in self.o.levels.split(","):
            if not self.build(p, folder, level, False, plain) or not self.build(p, folder, level, True, ours):
                continue
            expected, got = self.run(p, folder, plain, False), self.run(p, folder, ours, True)
            if expected is None or not expected[1] or expected[0]:
                self.fail(f"{p.name} -{level}: alone it fails, or says nothing", str(expected))
            elif got is None:
                self.fail(f"{p.name} -{level}: with the pass it does not end")
            elif got != expected:
                self.fail(f"{p.name} -{level}: differs", f"{str(expected)[:600]}\n{str(got)[:600]}")
            else:
                self.compared += 1

    def all(self):
        start = time.monotonic()
        self.heap = os.path.join(self.work, "heap.o")
        subprocess.run([os.path.join(self.o.build, "bin", "runahead-cc"), "--runahead-off", "-O2", "-c",
                        "-fno-builtin", "-I", os.path.join(HERE, "..", "..", "runtime"),
                        os.path.join(HERE, "heap.c"), "-o", self.heap], check=True)
        wanted = list(programs())
        folder = self.o.where.get("PolyBenchC") or os.path.join(self.o.sources, "PolyBenchC")
        if os.path.isdir(folder):
            wanted += polybench(folder)
        done = 0
        for p in wanted:
            if self.o.names and not any(re.fullmatch(n, p.name) for n in self.o.names):
                continue
            if self.o.seconds and time.monotonic() - start > self.o.seconds:
                print(f"no time for {p.name} and what follows")
                break
            before = len(self.failed), self.compared
            self.program(p)
            done += self.compared > before[1]
            print(f"{p.name}: {self.compared - before[1]} levels equal, {len(self.failed) - before[0]} failures",
                  flush=True)
        print(f"corpus: {done} programs, {self.files} files compiled with the pass, {self.compared} "
              f"executables equal to the plain ones, {self.inserted} nests transformed, entered "
              f"{self.entered} times, {len(self.failed)} failed, "
              f"absent: {', '.join(self.absent) or 'nothing'}")
        return bool(self.failed) or self.compared == 0


def main():
    if sys.argv[1:] == ["packages"]:
        print("\n".join(sorted({p.package for p in programs() if p.package not in ELSEWHERE})))
        return
    options = argparse.ArgumentParser()
    options.add_argument("--build", required=True)
    options.add_argument("--sources", required=True)
    options.add_argument("--source", action="append", default=[])
    options.add_argument("--levels", default="O1,O2,O3")
    options.add_argument("--home", choices=["eager", "normal"], default="eager")
    options.add_argument("--seconds", type=float)
    options.add_argument("names", nargs="*")
    o = options.parse_args()
    o.where = dict(s.split("=", 1) for s in o.source)
    o.build, o.sources = os.path.abspath(o.build), os.path.abspath(o.sources)
    with tempfile.TemporaryDirectory(prefix="runahead-corpus-") as work:
        sys.exit(Corpus(o, work).all())


if __name__ == "__main__":
    main()
