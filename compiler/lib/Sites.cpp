//===- Sites.cpp - which loops prefetch what ------------------------------===//
//
// A chain of loops with one loop each inside the other is one site, since only
// the run-time layer can tell at which of its levels an iteration touches about
// a block of pages. References whose addresses cannot be told from the top of
// the chain (the rows of a sparse matrix: `for j in row[i]..row[i+1]`) make a
// second site, rooted where they can: a *stream*.
//
// Several innermost loops side by side in the body of the chain's last loop
// belong to it as well: they are what one of its iterations touches.
//
// A call of a function of the module counts as the loads and stores in it (Summaries.h), as
// far as some loop here moves them: what every call touches in the same way is the function's own
// affair.
//
// A function of this file that is handed one short line of an array at each call (FT's
// transform) gets no sites for it: they were entered, and declined, 2.2 million times
// in a step of class A, and took a fifteenth of the compile time.
//
//===----------------------------------------------------------------------===//
#include "Runahead/Compat.h"
#include "Runahead/Sites.h"
#include "runahead_abi.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace runahead {

namespace {

/// References of one group lie within a page of each other; wider groups (the
/// planes of a stencil) are joined at run time, where the strides are known.
constexpr int64_t GroupSpread = 4096;
#ifndef RUNAHEAD_EAGER
/// A nest that is known to touch less than this is over before a prefetch arrives;
/// the run-time layer would decline it (SMALLEST_NEST in runtime/shape.c).
constexpr uint64_t SmallestFootprint = 64 * 1024;
/// One unit of the run-time layer (BLOCK_BYTES): a nest that is known to touch no more
/// is prefetched whole on entering.
constexpr uint64_t OneUnit = 256 * 1024;
/// The smallest footprint of a stream, whose many short entries make one long one.
constexpr uint64_t SmallestStream = 16 * 1024;
#else
/// A build for random and public programs, whose arrays are small: every nest counts.
constexpr uint64_t SmallestFootprint = 1, OneUnit = 0, SmallestStream = 1;
#endif

/// A load or store, or one that a called function makes.
struct Access {
  Instruction *At; ///< the load, the store or the call
  const SCEV *Pointer;
  const Value *Object; ///< what the pointer points into, as far as is known
  int64_t Size;
  bool Writes, Conditional;
  const CalledAccess *Called = nullptr;
};

/// Finds the pointer arguments behind which no call of a function has more than a little,
/// as far as can be seen: a loop runs along them as often as an integer argument says, and
/// that is a number in all calls. What else is done behind the pointer is taken to stay there.
class ShortArguments {
public:
  ShortArguments(Function &F, LoopInfo &LI, ScalarEvolution &SE) : SE(SE) {
    if (!F.hasLocalLinkage() || !readCalls(F) || Greatest.empty())
      return;
    for (Loop *L : LI)
      for (BasicBlock *BB : L->blocks())
        for (Instruction &Access : *BB)
          if (plainPointer(&Access))
            look(Access, L);
  }

  bool contains(const Value *V) const { return Short.contains(V); }

private:
  ScalarEvolution &SE;
  ValueToSCEVMapTy Greatest; ///< integer arguments by the greatest number of any call
  SmallPtrSet<const Value *, 4> Short;

  /// False when a call cannot be seen.
  bool readCalls(Function &F) {
    for (Use &U : F.uses()) {
      auto *Call = dyn_cast<CallBase>(U.getUser());
      if (!Call || !Call->isCallee(&U) || Call->arg_size() != F.arg_size())
        return false;
    }
    for (Argument &A : F.args())
      if (A.getType()->isIntegerTy())
        readActuals(F, A);
    return true;
  }

  void readActuals(Function &F, Argument &A) {
    const SCEV *Most = nullptr;
    for (User *U : F.users()) {
      auto *Number = dyn_cast<ConstantInt>(cast<CallBase>(U)->getArgOperand(A.getArgNo()));
      if (!Number)
        return;
      const SCEV *Here = SE.getConstant(Number);
      Most = Most ? SE.getSMaxExpr(Most, Here) : Here;
    }
    if (Most)
      Greatest[&A] = Most;
  }

  void look(Instruction &Access, Loop *Root) {
    const char *Why = nullptr;
    auto Address = linearAddress(&Access, Root, SE, Why);
    auto *Base = Address && Address->Base ? dyn_cast<SCEVUnknown>(Address->Base) : nullptr;
    if (!Base || !isa<Argument>(Base->getValue()) || Address->Index || Address->Strides.size() != 1)
      return;
    auto [L, Stride] = Address->Strides.front();
    const SCEV *Count = tripCountIn(L, Root, SE);
    auto *Step = dyn_cast<SCEVConstant>(Stride);
    if (!Count || !Step)
      return;
    const SCEV *Told = SCEVParameterRewriter::rewrite(Count, SE, Greatest);
    if (Told == Count)
      return;
    double Bytes = std::abs(double(Step->getAPInt().getSExtValue())) *
                   SE.getUnsignedRangeMax(Told).roundToDouble();
    if (Bytes < double(SmallestFootprint))
      Short.insert(Base->getValue());
  }
};

class SiteFinder {
public:
  SiteFinder(Function &F, LoopInfo &LI, ScalarEvolution &SE, DominatorTree &DT,
             const Summaries *Called, OptimizationRemarkEmitter &ORE)
      : LI(LI), SE(SE), DT(DT), Called(Called), ORE(ORE), Short(F, LI, SE) {}

  SmallVector<Site, 4> Sites;

  void visit(Loop *L) {
    if (tooDeep(L)) {
      for (Loop *Child : *L)
        visit(Child);
      return;
    }
    SmallVector<Loop *, 4> Chain{L};
    while (Chain.back()->getSubLoops().size() == 1)
      Chain.push_back(Chain.back()->getSubLoops().front());
    SmallVector<Loop *, 4> Side;
    for (Loop *Child : *Chain.back()) {
      if (Chain.size() > 1 && Child->isInnermost())
        Side.push_back(Child);
      else
        visit(Child);
    }
    sitesOfChain(Chain, Side);
  }

private:
  LoopInfo &LI;
  ScalarEvolution &SE;
  DominatorTree &DT;
  const Summaries *Called;
  OptimizationRemarkEmitter &ORE;
  ShortArguments Short;

  /// The chain that starts at L has more loops than a site has levels.
  static bool tooDeep(Loop *L) {
    unsigned Depth = 1;
    for (; L->getSubLoops().size() == 1; L = L->getSubLoops().front())
      ++Depth;
    return Depth > RUNAHEAD_MAX_LEVELS;
  }

  void sitesOfChain(ArrayRef<Loop *> Chain, ArrayRef<Loop *> Side) {
    // One site for each loop of the chain (and each side loop) that is the
    // outermost from which some reference can be told.
    SmallVector<Loop *, 8> Roots(Chain.begin(), Chain.end());
    Roots.append(Side.begin(), Side.end());
    SmallVector<Site, 4> Found(Roots.size());

    for (unsigned I = 0; I < Roots.size(); ++I) {
      bool IsSide = I >= Chain.size();
      Places Where{Roots, IsSide ? unsigned(Chain.size()) : I + 1, IsSide ? I : ~0u, Found};
      for (BasicBlock *BB : Roots[I]->blocks()) {
        if (LI.getLoopFor(BB) != Roots[I])
          continue;
        for (Instruction &Inst : *BB)
          if (plainPointer(&Inst))
            placeOwn(Inst, Where);
          else if (auto *Call = dyn_cast<CallBase>(&Inst))
            placeCall(*Call, Where);
      }
    }
    unsigned Limit = Chain.size(); // levels above this one belong to the outer site
    SmallVector<Site, 4> Kept;
    for (unsigned I = Roots.size(); I-- > 0;) {
      Site &S = Found[I];
      if (S.References.empty())
        continue;
      if (I >= Chain.size()) {
        S.Levels.push_back(Roots[I]);
      } else {
        S.Levels.append(Chain.begin() + I, Chain.begin() + Limit);
        dropIdleLevels(S);
      }
      S.Start = S.root()->getStartLoc();
      S.Stream = isStream(S);
      if (!finish(S))
        continue;
      if (I < Chain.size())
        Limit = I;
      Kept.push_back(std::move(S));
    }
    for (Site &S : reverse(Kept))
      Sites.push_back(std::move(S));
  }

  /// The roots that an access may belong to: the first `Outer` and, of a side loop, `Own`.
  struct Places {
    ArrayRef<Loop *> Roots;
    unsigned Outer, Own;
    MutableArrayRef<Site> Found;
  };

  void placeOwn(Instruction &I, const Places &Where) {
    Access A = own(I);
    if (isa<AllocaInst>(A.Object))
      return; // the stack is in memory
    const char *Why = "";
    if (!place(A, Where, Why))
      missed(I, Why);
  }

  Access own(Instruction &I) {
    Value *Pointer = plainPointer(&I);
    TypeSize Size = I.getModule()->getDataLayout().getTypeStoreSize(getLoadStoreType(&I));
    return {&I, SE.getSCEV(Pointer), getUnderlyingObject(Pointer), int64_t(Size.getKnownMinValue()),
            isa<StoreInst>(I), isConditional(I)};
  }

  /// What the called function touches, one by one.
  void placeCall(CallBase &Call, const Places &Where) {
    Function *F = Call.getCalledFunction();
    if (!Called || isa<IntrinsicInst>(Call) || Call.isInlineAsm() || Call.doesNotAccessMemory() ||
        (F && F->getName().starts_with("runahead_")))
      return;
    // A function elsewhere that is handed no address (a square root) is not worth a remark.
    if (F && F->isDeclaration() &&
        none_of(Call.args(), [](Value *V) { return V->getType()->isPointerTy(); }))
      return;
    const FunctionSummary *Summary = F ? Called->of(F) : nullptr;
    if (!Summary || Call.getFunctionType() != F->getFunctionType())
      return missedCall(Call, "its body is not known here");
    SmallVector<unsigned, 8> Placed(Where.Found.size());
    SmallSetVector<StringRef, 2> Reasons;
    if (Summary->Why)
      Reasons.insert(Summary->Why);
    for (const CalledAccess &A : Summary->Accesses) {
      const SCEV *Base = A.Base.at(Call, SE);
      auto *Known = dyn_cast<SCEVUnknown>(SE.getPointerBase(Base));
      const Value *Object = Known ? getUnderlyingObject(Known->getValue()) : nullptr;
      if (Object && isa<AllocaInst>(Object))
        continue;
      const char *Why = "";
      if (Site *S = place({&Call, SE.getAddExpr(Base, A.Rest.at(Call, SE)), Object, A.Size, A.Writes,
                           A.Conditional || isConditional(Call), &A},
                          Where, Why))
        ++Placed[S - Where.Found.data()];
      else
        Reasons.insert(Why);
    }
    for (unsigned I = 0; I < Placed.size(); ++I)
      if (Placed[I])
        Where.Found[I].Calls.push_back({&Call, Placed[I]});
    for (StringRef Why : Reasons)
      missedCall(Call, Why);
  }

  bool isConditional(Instruction &I) {
    BasicBlock *Latch = LI.getLoopFor(I.getParent())->getLoopLatch();
    return !Latch || !DT.dominates(I.getParent(), Latch);
  }

  /// Gives the access to the outermost root from which its address can be told.
  Site *place(const Access &A, const Places &Where, const char *&Why) {
    if (A.Object && Short.contains(A.Object)) {
      Why = "each call is handed a short piece of memory";
      return nullptr;
    }
    auto *Array = dyn_cast_or_null<GlobalVariable>(A.Object);
    if (Array && Array->hasInitializer() && !Array->isInterposable() &&
        Array->getDataLayout().getTypeAllocSize(Array->getValueType()) < SmallestStream) {
      Why = "the array is small";
      return nullptr;
    }
    auto Try = [&](unsigned I) {
      Loop *Root = Where.Roots[I];
      auto Address = linearAddress(A.Pointer, Root, SE, Why);
      if (!Address || (A.Called && !goInside(*A.Called, cast<CallBase>(*A.At), *Address, Root, Why)))
        return false;
      if (!known(*Address, Root)) {
        Why = "a bound or a stride is not known before the nest";
        return false;
      }
      return addChain(Where.Found[I], A, Root, std::move(*Address), Why, 0).has_value();
    };
    for (unsigned I = 0; I < Where.Outer; ++I)
      if (Try(I))
        return &Where.Found[I];
    return Where.Own != ~0u && Try(Where.Own) ? &Where.Found[Where.Own] : nullptr;
  }

  /// Adds the loops of the called function to an address that is its first one.
  bool goInside(const CalledAccess &A, CallBase &Call, Linear &Address, Loop *Root, const char *&Why) {
    if (!Address.Index && none_of(Address.Strides, [](auto &S) { return !S.second->isZero(); })) {
      Why = "it touches the same memory at each call";
      return false;
    }
    // Loops here that turn out to be no levels are dimensions as well.
    if (Address.Strides.size() + A.Loops.size() > RUNAHEAD_MAX_BOXES) {
      Why = "there are too many loops around it, here and in the function";
      return false;
    }
    for (const CalledAccess::Dimension &D : A.Loops) {
      const SCEV *Count = greatestIn(D.Count.at(Call, SE), Root, SE);
      if (!Count) {
        Why = "how far the function goes is not known before the nest";
        return false;
      }
      Address.Inside.push_back({D.Stride.at(Call, SE), Count});
    }
    return true;
  }

  void missed(Instruction &I, const char *Why) {
    ORE.emit([&] {
      return OptimizationRemarkMissed("runahead", "Reference", &I)
             << "no prefetch for this reference: " << ore::NV("Reason", Why);
    });
  }

  void missedCall(CallBase &Call, StringRef Why) {
    ORE.emit([&] {
      return OptimizationRemarkMissed("runahead", "Call", &Call)
             << "no prefetch for what this call touches, or for some of it: "
             << ore::NV("Reason", Why);
    });
  }

  /// Everything that enter needs can be computed before the root.
  bool known(const Linear &Address, Loop *Root) {
    BasicBlock *Preheader = Root->getLoopPreheader();
    if (!Preheader)
      return false;
    Expander Expander(SE, *Preheader->getModule());
    auto Safe = [&](const SCEV *S) {
      return Expander.isSafeToExpandAt(S, Preheader->getTerminator()) &&
             SE.isAvailableAtLoopEntry(S, Root);
    };
    if ((Address.Base && !Safe(Address.Base)) || !Safe(Address.Rest))
      return false;
    for (auto &[L, Stride] : Address.Strides)
      if (!Safe(Stride))
        return false;
    for (auto &[Stride, Count] : Address.Inside)
      if (!Safe(Stride) || !Safe(Count))
        return false;
    if (Address.Index)
      return Safe(Address.Index->Scale) && (!Address.Index->Add || Safe(Address.Index->Add));
    return true;
  }

  /// Longest chain of indices, a[b[c[i]]]: the run-time layer reads that far.
  static constexpr unsigned LongestChain = 2;

  /// Adds the access, behind the references that its address needs. Group number,
  /// and the place of the access inside the group.
  std::optional<std::pair<unsigned, int64_t>> addChain(Site &S, const Access &A, Loop *Root,
                                                       Linear Address, const char *&Why,
                                                       unsigned Depth) {
    std::optional<std::pair<unsigned, int64_t>> Index;
    if (Address.Index) {
      if (Depth == LongestChain) {
        Why = "the index is found through too many indices";
        return std::nullopt;
      }
      LoadInst *Load = Address.Index->Load;
      auto Of = linearAddress(Load, Root, SE, Why);
      if (!Of)
        return std::nullopt;
      if (!known(*Of, Root)) {
        Why = "a bound or a stride is not known before the nest";
        return std::nullopt;
      }
      Index = addChain(S, own(*Load), Root, std::move(*Of), Why, Depth + 1);
      if (!Index)
        return std::nullopt;
      S.References[Index->first].IsIndex = true;
    }
    auto Place = group(S, A, std::move(Address));
    if (!Place) {
      Why = "the nest has too many different references";
      return std::nullopt;
    }
    if (Index) {
      S.References[Place->first].IndexReference = Index->first;
      S.References[Place->first].IndexOffset = Index->second;
    }
    return Place;
  }

  /// Adds the access to the group it differs from by a constant, or makes a new
  /// one. Group number, and the offset of the access inside it.
  std::optional<std::pair<unsigned, int64_t>> group(Site &S, const Access &A, Linear Address) {
    Loop *Inner = LI.getLoopFor(A.At->getParent());
    for (unsigned I = 0; I < S.References.size(); ++I) {
      Reference &R = S.References[I];
      if (auto Offset = constantOffset(R, Inner, Address)) {
        R.Low = std::min(R.Low, *Offset);
        R.High = std::max(R.High, *Offset + A.Size);
        R.Writes |= A.Writes;
        R.Called &= A.Called != nullptr;
        return {{I, *Offset}};
      }
    }
    if (S.References.size() == RUNAHEAD_MAX_REFERENCES)
      return std::nullopt;
    Reference R;
    R.First = A.At;
    R.Inner = Inner;
    R.Address = std::move(Address);
    R.High = A.Size;
    R.Writes = A.Writes;
    R.Conditional = A.Conditional;
    R.Called = A.Called != nullptr;
    S.References.push_back(std::move(R));
    return {{unsigned(S.References.size() - 1), 0}};
  }

  std::optional<int64_t> constantOffset(const Reference &R, Loop *Inner, const Linear &A) {
    const Linear &B = R.Address;
    if (R.Inner != Inner || A.Base != B.Base || A.Strides.size() != B.Strides.size() ||
        A.Index.has_value() != B.Index.has_value())
      return std::nullopt;
    for (auto &[L, Stride] : A.Strides)
      if (B.strideIn(L) != Stride)
        return std::nullopt;
    if (!std::equal(A.Inside.begin(), A.Inside.end(), B.Inside.begin(), B.Inside.end(),
                    [](auto &One, auto &Other) {
                      return One.Stride == Other.Stride && One.Count == Other.Count;
                    }))
      return std::nullopt;
    if (A.Index && (A.Index->Load != B.Index->Load || A.Index->Scale != B.Index->Scale ||
                    A.Index->Add != B.Index->Add || A.Index->Signed != B.Index->Signed))
      return std::nullopt;
    auto *Difference = dyn_cast<SCEVConstant>(SE.getMinusSCEV(A.Rest, B.Rest));
    if (!Difference || Difference->getAPInt().abs().ugt(GroupSpread))
      return std::nullopt;
    return Difference->getAPInt().getSExtValue();
  }

  /// Inner levels at which no address moves are not levels to be called at.
  void dropIdleLevels(Site &S) {
    auto Moves = [&](Loop *L) {
      return any_of(S.References, [&](const Reference &R) {
        const SCEV *Stride = R.Address.strideIn(L);
        return Stride && !Stride->isZero();
      });
    };
    while (S.Levels.size() > 1 && !Moves(S.Levels.back()))
      S.Levels.pop_back();
    // One execution of the innermost loop is known to touch little: the run-time layer
    // would choose an outer level. (Index values are followed along levels only.)
    if (S.Levels.size() > 1 && none_of(S.References, [](const Reference &R) {
          return R.Address.Index.has_value();
        }) && footprint(S, S.Levels.back()) < SmallestFootprint)
      S.Levels.pop_back();
  }

  /// A single loop that goes on, at its next entry, where it left off, as far as one
  /// can see: that which begins at the same place each time does not.
  bool isStream(const Site &S) {
    Loop *Parent = S.root()->getParentLoop();
    if (!Parent || S.Levels.size() != 1)
      return false;
    for (const Reference &R : S.References)
      if (!R.Address.Index && R.Address.strideIn(S.root()))
        return !(R.Address.Base && SE.isLoopInvariant(R.Address.Base, Parent) &&
                 SE.isLoopInvariant(R.Address.Rest, Parent));
    return true;
  }

  /// Last looks at a site: is there anything left that could miss?
  bool finish(Site &S) {
    bool Moves = any_of(S.References, [](const Reference &R) {
      return !R.Address.Strides.empty() || R.Address.Index;
    });
    if (!Moves || S.Levels.empty())
      return false;
    uint64_t Smallest = S.Stream ? SmallestStream : SmallestFootprint;
    uint64_t Bytes = footprint(S);
    S.AtOnce = !S.Stream && Bytes <= OneUnit;
    if (Bytes >= Smallest)
      return true;
    ORE.emit([&] {
      return OptimizationRemarkMissed("runahead", "Small", S.Start,
                                      S.root()->getHeader())
             << "no prefetch: the nest touches less than "
             << ore::NV("Bytes", unsigned(Smallest)) << " bytes";
    });
    return false;
  }

  /// An upper bound where all bounds and strides are constants, else "much".
  /// With `Within`, of one execution of that loop.
  uint64_t footprint(const Site &S, const Loop *Within = nullptr) {
    uint64_t Total = 0;
    for (const Reference &R : S.References) {
      if (R.Address.Index)
        return ~0ull;
      double Bytes = double(R.High - R.Low);
      for (auto &[L, Stride] : R.Address.Strides) {
        if (Within && !Within->contains(L))
          continue;
        unsigned Count = SE.getSmallConstantMaxTripCount(const_cast<Loop *>(L));
        auto *Constant = dyn_cast<SCEVConstant>(Stride);
        if (Count == 0 || !Constant)
          return ~0ull;
        Bytes += double(Count) * std::abs(double(Constant->getAPInt().getSExtValue()));
      }
      for (auto &[Stride, Count] : R.Address.Inside) {
        auto *Step = dyn_cast<SCEVConstant>(Stride), *Times = dyn_cast<SCEVConstant>(Count);
        if (!Step || !Times)
          return ~0ull;
        Bytes += std::abs(double(Step->getAPInt().getSExtValue()) *
                          double(Times->getAPInt().getSExtValue()));
      }
      if (Bytes > 1e15)
        return ~0ull;
      Total += uint64_t(Bytes);
    }
    return Total;
  }
};

} // namespace

SmallVector<Site, 4> findSites(Function &F, LoopInfo &LI, ScalarEvolution &SE,
                               DominatorTree &DT, const Summaries *Called,
                               OptimizationRemarkEmitter &ORE) {
  SiteFinder Finder(F, LI, SE, DT, Called, ORE);
  for (Loop *L : LI)
    Finder.visit(L);
  return std::move(Finder.Sites);
}

} // namespace runahead
