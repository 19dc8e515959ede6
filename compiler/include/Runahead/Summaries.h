//===- Summaries.h - what a called function touches -------------*- C++ -*-===//
//
// A loop that hands a function one row at each call goes through memory as if the
// function's loop stood in it. A *summary* lists the loads and stores of a function whose
// addresses are linear in the counters of its loops and otherwise made of its arguments;
// with a call's own arguments in their places they are references of the caller's loop,
// whose inner loops are the function's (Linear::Inside).
//
// Summaries are made of the whole module before any function is changed by the pass: a
// function that comes before its caller is in strips and vectors by the time the caller is
// looked at. They outlive the analyses that they were made from, hence `Formula`.
//
//===----------------------------------------------------------------------===//
#ifndef RUNAHEAD_SUMMARIES_H
#define RUNAHEAD_SUMMARIES_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/IR/ValueMap.h"
#include <memory>
#include <optional>
#include <vector>

namespace runahead {

/// A sum, product, extension, ... of arguments and constants, which belongs to nobody.
struct Formula {
  llvm::SCEVTypes Kind;
  llvm::Type *Type;
  llvm::WeakTrackingVH Leaf; ///< an argument or a constant; null when it is gone
  std::vector<Formula> Operands;

  bool alive() const {
    return Operands.empty() ? Leaf.pointsToAliveValue()
                            : llvm::all_of(Operands, [](auto &F) { return F.alive(); });
  }
  /// Its value at a call, in the caller's terms.
  const llvm::SCEV *at(const llvm::CallBase &Call, llvm::ScalarEvolution &SE) const;
};

/// A load or store of the function.
struct CalledAccess {
  Formula Base, Rest; ///< the first address; Base is a pointer, Rest an i64
  struct Dimension {
    Formula Stride, Count; ///< of one of the loops around it, in bytes and iterations
  };
  llvm::SmallVector<Dimension, 2> Loops;
  int64_t Size;
  bool Writes;
  bool Conditional; ///< not executed at every call, or in every iteration
};

struct FunctionSummary {
  std::vector<CalledAccess> Accesses;
  const char *Why = nullptr; ///< some access, or every one, is missing: why

  bool alive() const {
    return llvm::all_of(Accesses, [](const CalledAccess &A) {
      return A.Base.alive() && A.Rest.alive() && llvm::all_of(A.Loops, [](auto &L) {
               return L.Stride.alive() && L.Count.alive();
             });
    });
  }
};

/// The functions of the module that are called in some loop of it.
class Summaries {
public:
  const FunctionSummary *of(const llvm::Function *F) const {
    auto Found = Functions->find(F);
    return Found == Functions->end() || !Found->second.alive() ? nullptr : &Found->second;
  }
  /// Never out of date while its function is there: that touches what it touched, however it
  /// is optimised, and what it no longer touches costs a useless prefetch.
  bool invalidate(llvm::Module &, const llvm::PreservedAnalyses &,
                  llvm::ModuleAnalysisManager::Invalidator &) {
    return false;
  }

private:
  friend class SummariesAnalysis;
  struct ByFunction : llvm::ValueMapConfig<const llvm::Function *> {
    enum { FollowRAUW = false };
  };
  /// A function that is removed takes its summary with it.
  using Map = llvm::ValueMap<const llvm::Function *, FunctionSummary, ByFunction>;
  std::unique_ptr<Map> Functions = std::make_unique<Map>();
};

class SummariesAnalysis : public llvm::AnalysisInfoMixin<SummariesAnalysis> {
public:
  using Result = Summaries;
  Summaries run(llvm::Module &M, llvm::ModuleAnalysisManager &MAM);

private:
  friend llvm::AnalysisInfoMixin<SummariesAnalysis>;
  static llvm::AnalysisKey Key;
};

} // namespace runahead
#endif
