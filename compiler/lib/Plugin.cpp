//===- Plugin.cpp - how compilers find the pass ---------------------------===//
//
// Loaded by `clang -fpass-plugin=`, `flang -fpass-plugin=` and
// `opt -load-pass-plugin=`. The C++ interface of LLVM changes with every major
// version, so the first thing to do is to ask the host for its version and to
// refuse politely when it is not the one that this plugin was built for.
//
//===----------------------------------------------------------------------===//
#include "Runahead/Pass.h"
#include "Runahead/Summaries.h"
#include "llvm/Passes/PassBuilder.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace llvm;

/// The host's LLVM major, or 0 when it does not say.
static unsigned hostMajor() {
  using Version = void (*)(unsigned *, unsigned *, unsigned *);
  auto Ask = reinterpret_cast<Version>(dlsym(RTLD_DEFAULT, "LLVMGetVersion"));
  unsigned Major = 0;
  if (Ask)
    Ask(&Major, nullptr, nullptr);
  return Major;
}

/// Under ThinLTO loops are vectorised when the program is linked, by a linker that has not loaded
/// this plugin. The wrappers say so, since LLVM 19 does not (tools/runahead-cc.in).
static bool vectorisesAtLink() {
  const char *Lto = std::getenv("RUNAHEAD_LTO");
  return Lto && StringRef(Lto) == "thin";
}

static void registerPass(PassBuilder &PB) {
  PB.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
    MAM.registerPass([] { return runahead::SummariesAnalysis(); });
  });
  // After inlining as well, and before the first function goes through the pass below.
  // (LLVM 20 and later also tell the phase of link-time optimisation.)
  PB.registerOptimizerEarlyEPCallback(
      [](ModulePassManager &MPM, OptimizationLevel Level, auto...) {
        if (Level == OptimizationLevel::O0)
          return;
        MPM.addPass(RequireAnalysisPass<runahead::SummariesAnalysis, Module>());
        // The last that is called of the part of ThinLTO's pipeline that runs here.
        if (vectorisesAtLink())
          MPM.addPass(createModuleToFunctionPassAdaptor(runahead::OutOfCorePass()));
      });
  // After inlining and the simplification of induction variables, before
  // vectorisation and loop-strength reduction: addresses are simplest here, and
  // the vectoriser still comes to the inner loops.
  PB.registerVectorizerStartEPCallback(
      [](FunctionPassManager &FPM, OptimizationLevel Level) {
        if (Level != OptimizationLevel::O0 && !vectorisesAtLink())
          FPM.addPass(runahead::OutOfCorePass());
      });
  PB.registerPipelineParsingCallback(
      [](StringRef Name, FunctionPassManager &FPM, ArrayRef<PassBuilder::PipelineElement>) {
        if (Name != "runahead" && Name != "runahead<break>")
          return false;
        FPM.addPass(runahead::OutOfCorePass(/*Break=*/Name != "runahead"));
        return true;
      });
}

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  unsigned Host = hostMajor();
  if (Host != 0 && Host != LLVM_VERSION_MAJOR) {
    std::fprintf(stderr,
                 "runahead: this plugin was built for LLVM %d, but the compiler that loads it "
                 "is LLVM %u. Use the runahead-%u plugin (build it with "
                 "-DRUNAHEAD_LLVM_MAJOR=%u).\n",
                 LLVM_VERSION_MAJOR, Host, Host, Host);
    // An API version that no host has: the host reports an error and stops.
    return {0, "runahead", LLVM_VERSION_STRING, nullptr};
  }
  return {LLVM_PLUGIN_API_VERSION, "runahead", LLVM_VERSION_STRING, registerPass};
}
