//===- Addresses.cpp - addresses as linear functions of loop counters -----===//
//
// ScalarEvolution gives an address as a tree of recurrences. This file sorts its
// terms: what is invariant in the root, what grows with the counter of one of the
// loops, and at most one term that was loaded from memory.
//
// Extensions are pushed inwards as if nothing overflowed. That can be wrong, and
// then a prefetch goes to a page that nobody wants.
//
//===----------------------------------------------------------------------===//
#include "Runahead/Sites.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

namespace runahead {

namespace {

class Linearizer {
public:
  Linearizer(Loop *Root, ScalarEvolution &SE)
      : Root(Root), SE(SE), I64(Type::getInt64Ty(SE.getContext())) {}

  const char *Why = nullptr;
  Linear Result;

  bool address(const SCEV *Pointer) {
    Result.Rest = SE.getZero(I64);
    const SCEV *Base = SE.getPointerBase(Pointer);
    if (SE.isLoopInvariant(Base, Root)) {
      Result.Base = Base;
    } else if (!baseFromMemory(Base)) {
      return fail("the base address changes in a way that cannot be predicted");
    }
    return add(SE.removePointerBase(Pointer), SE.getOne(I64), /*Signed=*/true);
  }

private:
  Loop *Root;
  ScalarEvolution &SE;
  Type *I64;

  bool fail(const char *Reason) {
    Why = Reason;
    return false;
  }

  const SCEV *widen(const SCEV *S, bool Signed) {
    if (S->getType()->isPointerTy())
      return SE.getPtrToIntExpr(S, I64);
    return Signed ? SE.getTruncateOrSignExtend(S, I64) : SE.getTruncateOrZeroExtend(S, I64);
  }

  /// A pointer that is itself loaded in the loop: rows of a table of pointers, or
  /// a data pointer that the compiler could not keep in a register.
  bool baseFromMemory(const SCEV *Base) {
    auto *Unknown = dyn_cast<SCEVUnknown>(Base);
    auto *Load = Unknown ? dyn_cast<LoadInst>(Unknown->getValue()) : nullptr;
    return Load && index(Load, SE.getOne(I64), nullptr, /*Signed=*/false);
  }

  bool index(LoadInst *Load, const SCEV *Scale, const SCEV *Add, bool Signed) {
    if (Result.Index)
      return fail("the address depends on two values from memory");
    if (!plainPointer(Load) || !Root->contains(Load))
      return fail("the index is not a plain load in the loop");
    if (!SE.isLoopInvariant(Scale, Root))
      return fail("the scale of the index changes in the loop");
    Result.Index = IndexTerm{Load, Scale, Add, Signed};
    return true;
  }

  void addStride(const Loop *L, const SCEV *Stride) {
    for (auto &[Loop, Sum] : Result.Strides)
      if (Loop == L) {
        Sum = SE.getAddExpr(Sum, Stride);
        return;
      }
    Result.Strides.push_back({L, Stride});
  }

  /// Adds Scale * S. `Signed` says how a narrow S is to be widened.
  bool add(const SCEV *S, const SCEV *Scale, bool Signed) {
    if (SE.isLoopInvariant(S, Root)) {
      Result.Rest = SE.getAddExpr(Result.Rest, SE.getMulExpr(widen(S, Signed), Scale));
      return true;
    }
    if (auto *Recurrence = dyn_cast<SCEVAddRecExpr>(S)) {
      if (!Recurrence->isAffine())
        return fail("the stride changes in the loop");
      const Loop *L = Recurrence->getLoop();
      const SCEV *Step = Recurrence->getStepRecurrence(SE);
      if (!Root->contains(L) || !SE.isLoopInvariant(Step, Root))
        return fail("the stride is not known when the nest is entered");
      // A step is signed whatever the widening of the value it is added to.
      addStride(L, SE.getMulExpr(widen(Step, true), Scale));
      return add(Recurrence->getStart(), Scale, Signed);
    }
    if (auto *Sum = dyn_cast<SCEVAddExpr>(S)) {
      for (const SCEV *Operand : Sum->operands())
        if (!add(Operand, Scale, Signed))
          return false;
      return true;
    }
    if (auto *Product = dyn_cast<SCEVMulExpr>(S))
      return product(Product, Scale, Signed);
    if (auto *Cast = dyn_cast<SCEVCastExpr>(S))
      return cast(Cast, Scale, Signed);
    if (auto *Unknown = dyn_cast<SCEVUnknown>(S)) {
      if (auto *Load = dyn_cast<LoadInst>(Unknown->getValue()))
        return index(Load, Scale, nullptr, Signed);
      return fail("the address depends on a value that is computed in the loop");
    }
    return fail("the address is not linear in the loop counters");
  }

  bool product(const SCEVMulExpr *Product, const SCEV *Scale, bool Signed) {
    const SCEV *Varying = nullptr;
    for (const SCEV *Operand : Product->operands()) {
      if (SE.isLoopInvariant(Operand, Root)) {
        Scale = SE.getMulExpr(Scale, widen(Operand, true));
      } else if (Varying) {
        return fail("the address multiplies two values that change");
      } else {
        Varying = Operand;
      }
    }
    return add(Varying, Scale, Signed);
  }

  bool cast(const SCEVCastExpr *Cast, const SCEV *Scale, bool Signed) {
    const SCEV *Inner = Cast->getOperand();
    bool InnerSigned = isa<SCEVSignExtendExpr>(Cast) ||
                       (Signed && !isa<SCEVZeroExtendExpr>(Cast));
    // extend(load + constant): the sum is made in the narrow type.
    if (auto *Sum = dyn_cast<SCEVAddExpr>(Inner)) {
      if (Sum->getNumOperands() == 2 && SE.isLoopInvariant(Sum->getOperand(0), Root))
        if (auto *Unknown = dyn_cast<SCEVUnknown>(Sum->getOperand(1)))
          if (auto *Load = dyn_cast<LoadInst>(Unknown->getValue()))
            return index(Load, Scale, widen(Sum->getOperand(0), InnerSigned), InnerSigned);
    }
    return add(Inner, Scale, InnerSigned);
  }
};

} // namespace

Value *plainPointer(Instruction *I) {
  if (auto *Load = dyn_cast<LoadInst>(I))
    return Load->isUnordered() && !Load->isVolatile() && Load->getPointerAddressSpace() == 0
               ? Load->getPointerOperand()
               : nullptr;
  if (auto *Store = dyn_cast<StoreInst>(I))
    return Store->isUnordered() && !Store->isVolatile() && Store->getPointerAddressSpace() == 0
               ? Store->getPointerOperand()
               : nullptr;
  return nullptr;
}

std::optional<Linear> linearAddress(Instruction *Access, Loop *Root, ScalarEvolution &SE,
                                    const char *&Why) {
  return linearAddress(SE.getSCEV(plainPointer(Access)), Root, SE, Why);
}

std::optional<Linear> linearAddress(const SCEV *Pointer, Loop *Root, ScalarEvolution &SE,
                                    const char *&Why) {
  Linearizer L(Root, SE);
  if (!L.address(Pointer)) {
    Why = L.Why;
    return std::nullopt;
  }
  return std::move(L.Result);
}

namespace {

/// Replaces the counters of loops inside Root by their first or by their last values,
/// the same ones everywhere: where both ends of a loop move with an outer counter, its length
/// is their difference in one iteration. (Each taken at its greatest made a row of 62 points
/// one of 253,822, and SP's prefetches read 20 times what it went through.)
struct AtOneEnd : SCEVRewriteVisitor<AtOneEnd> {
  Loop const *Root;
  bool Last;
  AtOneEnd(const Loop *Root, ScalarEvolution &SE, bool Last)
      : SCEVRewriteVisitor(SE), Root(Root), Last(Last) {}

  const SCEV *visitAddRecExpr(const SCEVAddRecExpr *R) {
    const SCEV *Count = SE.getBackedgeTakenCount(R->getLoop());
    if (!Root->contains(R->getLoop()) || isa<SCEVCouldNotCompute>(Count) || !R->isAffine() ||
        !R->getType()->isIntegerTy())
      return R;
    const SCEV *First = visit(R->getStart());
    if (!Last)
      return First;
    const SCEV *Step = visit(R->getStepRecurrence(SE));
    return SE.getAddExpr(
        First, SE.getMulExpr(SE.getTruncateOrZeroExtend(visit(Count), R->getType()), Step));
  }
};

} // namespace

const SCEV *greatestIn(const SCEV *Count, const Loop *Root, ScalarEvolution &SE) {
  // The bound of a triangular loop is greatest at one of the ends.
  if (!SE.isLoopInvariant(Count, Root))
    Count = SE.getSMaxExpr(AtOneEnd(Root, SE, false).visit(Count), AtOneEnd(Root, SE, true).visit(Count));
  return SE.isLoopInvariant(Count, Root) ? Count : nullptr;
}

const SCEV *tripCountIn(const Loop *L, const Loop *Root, ScalarEvolution &SE) {
  const SCEV *Count = SE.getBackedgeTakenCount(L);
  if (isa<SCEVCouldNotCompute>(Count)) {
    Count = SE.getSymbolicMaxBackedgeTakenCount(L);
    // A bound that lies in memory which a store in the loop may reach: "at most as often as an int
    // can count, in steps of so much" says nothing, and whoever believes it looks up values far
    // behind the end. (One more than the greatest number would be 0 in 64 bits, besides.)
    if (auto *Constant = dyn_cast<SCEVConstant>(Count))
      if (Constant->getAPInt().uge(1u << 25))
        return nullptr;
  }
  if (isa<SCEVCouldNotCompute>(Count) || SE.getTypeSizeInBits(Count->getType()) > 64)
    return nullptr;
  Count = greatestIn(Count, Root, SE);
  if (!Count)
    return nullptr;
  Type *I64 = Type::getInt64Ty(SE.getContext());
  return SE.getAddExpr(SE.getTruncateOrZeroExtend(Count, I64), SE.getOne(I64));
}

} // namespace runahead
