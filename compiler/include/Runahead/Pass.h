//===- Pass.h - compiler-inserted prefetch and release ----------*- C++ -*-===//
#ifndef RUNAHEAD_PASS_H
#define RUNAHEAD_PASS_H

#include "llvm/IR/PassManager.h"

namespace runahead {

/// Finds loop nests whose references can be predicted and makes them tell the
/// run-time layer (runtime/) where they are. What it makes of a function is verified; where
/// that fails the function keeps the body that it had.
struct OutOfCorePass : llvm::PassInfoMixin<OutOfCorePass> {
  /// With `Break` every function that it changes comes out invalid, for the tests of that.
  explicit OutOfCorePass(bool Break = false) : Break(Break) {}
  llvm::PreservedAnalyses run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM);

private:
  bool Break;
};

} // namespace runahead
#endif
