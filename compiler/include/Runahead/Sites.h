//===- Sites.h - what the pass knows about a loop nest ----------*- C++ -*-===//
//
// A *site* is a loop nest that will prefetch: a root loop, the chain of single
// loops below it that carry a counter (*levels*), and the references to memory
// inside whose addresses are linear in those counters. An address may have one
// more term, the value of another reference: that is `a[b[i]]`.
//
// Everything here is a hint about speed. The analysis is optimistic where that
// only costs a useless prefetch (integer overflow, triangular bounds); what the
// program computes never depends on it.
//
//===----------------------------------------------------------------------===//
#ifndef RUNAHEAD_SITES_H
#define RUNAHEAD_SITES_H

#include "Runahead/Summaries.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include <optional>
#include <string>

namespace runahead {

/// The term of an address that comes from memory: scale * extend(load + add).
struct IndexTerm {
  llvm::LoadInst *Load = nullptr;
  const llvm::SCEV *Scale = nullptr; ///< i64, invariant in the root
  const llvm::SCEV *Add = nullptr;   ///< added before the extension; null: nothing
  bool Signed = true;
};

/// An address as a linear function of the counters of the loops around it.
struct Linear {
  const llvm::SCEV *Base = nullptr; ///< pointer part, or null when it is an index term
  const llvm::SCEV *Rest = nullptr; ///< i64, invariant in the root
  /// Byte stride for each loop from the root inwards that the address depends on.
  llvm::SmallVector<std::pair<const llvm::Loop *, const llvm::SCEV *>, 4> Strides;
  std::optional<IndexTerm> Index;
  /// Byte stride and count of loops that lie in a called function.
  struct Dimension {
    const llvm::SCEV *Stride, *Count;
  };
  llvm::SmallVector<Dimension, 2> Inside;

  const llvm::SCEV *strideIn(const llvm::Loop *L) const {
    for (auto &[Loop, Stride] : Strides)
      if (Loop == L)
        return Stride;
    return nullptr;
  }
};

/// A group of references that differ by constants.
struct Reference {
  llvm::Instruction *First;  ///< the member that the offsets count from
  llvm::Loop *Inner;         ///< the innermost loop around it
  Linear Address;
  int64_t Low = 0, High = 0; ///< bytes touched, relative to the address of First
  bool Writes = false;
  bool Conditional = false;
  bool Called = false;       ///< all members lie in called functions
  bool IsIndex = false;
  unsigned IndexReference = 0; ///< with an index term: which reference holds it
  int64_t IndexOffset = 0;     ///< the index load's place inside that reference
};

struct Site {
  llvm::SmallVector<llvm::Loop *, 4> Levels; ///< root first
  llvm::DebugLoc Start;                      ///< where the root begins in the source
  llvm::SmallVector<Reference, 8> References;
  /// Calls that stand for loads and stores of the called function, and for how many.
  llvm::SmallVector<std::pair<llvm::CallBase *, unsigned>, 2> Calls;
  bool AtOnce = false; ///< known to be so small that all is prefetched on entering
  bool Stream = false; ///< the root lies inside another loop that could not be joined

  llvm::Loop *root() const { return Levels.front(); }
  llvm::Loop *innermost() const { return Levels.back(); }
};

/// Writes the address of `Access` as a linear function of the loops from `Root`
/// inwards, or says in `Why` what stands in the way.
std::optional<Linear> linearAddress(llvm::Instruction *Access, llvm::Loop *Root,
                                    llvm::ScalarEvolution &SE, const char *&Why);
std::optional<Linear> linearAddress(const llvm::SCEV *Pointer, llvm::Loop *Root,
                                    llvm::ScalarEvolution &SE, const char *&Why);

/// Pointer operand of a plain load or store in address space 0, else null.
llvm::Value *plainPointer(llvm::Instruction *I);

/// How often the body of L runs, as an i64 that is invariant in Root; where the
/// count changes with an outer counter, its greater end. Null when unknown.
const llvm::SCEV *tripCountIn(const llvm::Loop *L, const llvm::Loop *Root,
                              llvm::ScalarEvolution &SE);
/// The same for a count that is given.
const llvm::SCEV *greatestIn(const llvm::SCEV *Count, const llvm::Loop *Root,
                             llvm::ScalarEvolution &SE);

/// All sites of a function, outer before inner, with remarks on what is missed. Without
/// `Called` calls are not looked into.
llvm::SmallVector<Site, 4> findSites(llvm::Function &F, llvm::LoopInfo &LI,
                                     llvm::ScalarEvolution &SE, llvm::DominatorTree &DT,
                                     const Summaries *Called,
                                     llvm::OptimizationRemarkEmitter &ORE);

} // namespace runahead
#endif
