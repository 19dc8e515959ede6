//===- Compat.h - what differs between LLVM majors --------------*- C++ -*-===//
#ifndef RUNAHEAD_COMPAT_H
#define RUNAHEAD_COMPAT_H

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

namespace runahead {

/// LLVM 22 finds the data layout by itself.
///
/// An expander's table is keyed by the addresses of the instructions that it expanded
/// before. So it lives only as long as no instruction can be removed: on the stack of a
/// function that changes no edge, never in an object. Values of loops are used as they
/// are; whoever copies a loop brings it into LCSSA form first.
struct Expander : llvm::SCEVExpander {
  Expander(llvm::ScalarEvolution &SE, const llvm::Module &M)
#if LLVM_VERSION_MAJOR >= 22
      : SCEVExpander(SE, "runahead", /*PreserveLCSSA=*/false) {
    (void)M;
  }
#else
      : SCEVExpander(SE, M.getDataLayout(), "runahead", /*PreserveLCSSA=*/false) {
  }
#endif
  Expander(const Expander &) = delete;
};

} // namespace runahead
#endif
