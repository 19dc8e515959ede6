//===- Pass.h - compiler-inserted prefetch and release ----------*- C++ -*-===//
#ifndef RUNAHEAD_PASS_H
#define RUNAHEAD_PASS_H

#include "llvm/IR/PassManager.h"

namespace runahead {

/// Finds loop nests whose references can be predicted and makes them tell the
/// run-time layer (runtime/) where they are.
struct OutOfCorePass : llvm::PassInfoMixin<OutOfCorePass> {
  llvm::PreservedAnalyses run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM);
};

} // namespace runahead
#endif
