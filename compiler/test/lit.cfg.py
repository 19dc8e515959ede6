"""lit: small .ll files that are looked at, and small programs that are run.

Programs are compiled twice, plainly and with the pass, and have to print the
same. Substitutions: %opt, %plugin, %cc, %cxx, %fc (the wrappers), %plaincc.
"""
import fcntl
import os
import shutil
import subprocess

import lit.formats

config.name = "runahead-compiler-" + config.llvm_major
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".ll", ".c", ".cpp", ".f90", ".test"]
config.excludes = ["Inputs", "corpus"]
config.test_source_root = os.path.join(config.runahead_source, "test")
config.test_exec_root = os.path.join(config.runahead_build, "test")
config.environment["PATH"] = config.llvm_bin + os.pathsep + os.environ["PATH"]
config.environment["RUNAHEAD_OOC_DIR"] = config.test_exec_root

# Two runs in one build write the same files: a program truncated while another run
# reads it shows as FileCheck's "input is empty" (exit code 2), as a difference, or as
# "text file busy". The second run waits; the kernel drops the lock when lit ends.
os.makedirs(config.test_exec_root, exist_ok=True)
only_one = open(os.path.join(config.test_exec_root, "lock"), "w")
fcntl.flock(only_one, fcntl.LOCK_EX)
lit_config.runahead_lock = only_one  # kept open as long as lit runs

wrappers = os.path.join(config.runahead_build, "bin")
for name, value in {
    "%opt": f"{config.llvm_bin}/opt -load-pass-plugin={config.plugin}",
    "%plugin": config.plugin,
    "%plaincc": f"{config.llvm_bin}/clang",
    "%plaincxx": f"{config.llvm_bin}/clang++",
    "%cxx": f"{wrappers}/runahead-c++",
    "%cc": f"{wrappers}/runahead-cc",
    "%fc": f"{wrappers}/runahead-fc",
    "%runtime": os.path.join(config.runahead_source, "runtime"),
    "%major": config.llvm_major,
    "%build": config.runahead_build,
    # Of the run-time layer one part at a time, so that a test can stand between two; the report comes with it.
    "%parts": f"-Wl,-u,runahead_ooc_report {config.runahead_build}/librunahead_parts.a",
    "%limited": os.path.join(config.runahead_source, "test", "limited.py"),
    "%source": config.runahead_source,
}.items():
    config.substitutions.append((name, value))

if shutil.which(f"flang-{config.llvm_major}") or shutil.which(f"flang-new-{config.llvm_major}"):
    config.available_features.add("flang")
if any(os.path.exists(os.path.join(config.llvm_bin, "..", "lib", name)) for name in ("libomp.so", "libomp.a")):
    config.available_features.add("openmp")
if os.path.exists(os.path.join(config.llvm_bin, "..", "lib", "LLVMgold.so")):  # what ld loads for -flto
    config.available_features.add("lto")
if subprocess.run([os.path.join(config.runahead_source, "test", "limited.py"), "32", "true"],
                  stderr=subprocess.DEVNULL).returncode == 0:
    config.available_features.add("memory-cgroup")
installed_from = os.path.join(config.runahead_source, "..", "target", "compiler-" + config.llvm_major)
if (os.path.realpath(config.runahead_build) == os.path.realpath(installed_from)
        and all(map(shutil.which, ("cmake", "make", "pkg-config")))):
    config.available_features.add("installable")
if os.geteuid() == 0 and shutil.which("mke2fs") and os.path.exists("/dev/loop-control"):
    config.available_features.add("small-disk")
for other in ("19", "22"):
    if other != config.llvm_major and os.path.exists(f"/usr/lib/llvm-{other}/bin/opt"):
        config.available_features.add("other-llvm")
        config.substitutions.append(("%other_opt", f"/usr/lib/llvm-{other}/bin/opt"))
        break
