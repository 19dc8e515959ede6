//===- Compat.h - what differs between LLVM majors --------------*- C++ -*-===//
#ifndef RUNAHEAD_COMPAT_H
#define RUNAHEAD_COMPAT_H

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

namespace runahead {

/// LLVM 22 finds the data layout by itself.
struct Expander : llvm::SCEVExpander {
  Expander(llvm::ScalarEvolution &SE, const llvm::Module &M)
#if LLVM_VERSION_MAJOR >= 22
      : SCEVExpander(SE, "runahead") {
    (void)M;
  }
#else
      : SCEVExpander(SE, M.getDataLayout(), "runahead") {
  }
#endif
};

} // namespace runahead
#endif
