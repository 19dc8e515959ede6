//===- Summaries.cpp - what a called function touches ---------------------===//
//
// A function is summarised when some loop calls it, its body is the one that will run and it
// does not call itself. What it calls in its turn is not followed, nor what it looks up in
// memory (`a[b[i]]`, with b known to the function only). That the body might be replaced by
// an equal one (C++'s inline functions) is no hindrance: nothing but prefetches follows.
//
//===----------------------------------------------------------------------===//
#include "Runahead/Summaries.h"
#include "Runahead/Sites.h"
#include "runahead_abi.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace runahead {

AnalysisKey SummariesAnalysis::Key;

/// Loads and stores of a function that is worth a summary: a site has room for
/// RUNAHEAD_MAX_REFERENCES groups of them, and neighbours make one group. What has more is a
/// program's phase (BT's and SP's solvers), not a step of a loop.
static constexpr unsigned MostAccesses = 2 * RUNAHEAD_MAX_REFERENCES;
/// Parts of a formula: addresses have some five, and a SCEV can share its parts, which a
/// formula cannot.
static constexpr unsigned LargestFormula = 48;

static std::optional<Formula> formulaOf(const SCEV *S, unsigned &Room) {
  if (Room == 0)
    return std::nullopt;
  --Room;
  Formula Result{S->getSCEVType(), S->getType(), {}, {}};
  switch (S->getSCEVType()) {
  case scConstant:
    Result.Leaf = cast<SCEVConstant>(S)->getValue();
    return Result;
  case scUnknown: {
    Value *V = cast<SCEVUnknown>(S)->getValue();
    auto *Global = dyn_cast<GlobalValue>(V);
    if (!isa<Argument>(V) && (!Global || Global->isThreadLocal()))
      return std::nullopt;
    Result.Leaf = V;
    return Result;
  }
  case scTruncate:
  case scZeroExtend:
  case scSignExtend:
  case scPtrToInt:
  case scAddExpr:
  case scMulExpr:
  case scUDivExpr:
  case scSMaxExpr:
  case scUMaxExpr:
  case scSMinExpr:
  case scUMinExpr:
    break;
  default:
    return std::nullopt;
  }
  for (const SCEV *Operand : S->operands()) {
    auto Part = formulaOf(Operand, Room);
    if (!Part)
      return std::nullopt;
    Result.Operands.push_back(std::move(*Part));
  }
  return Result;
}

static std::optional<Formula> formulaOf(const SCEV *S) {
  unsigned Room = LargestFormula;
  return formulaOf(S, Room);
}

/// Without the promises about overflow that held in the function: behind its own tests only.
const SCEV *Formula::at(const CallBase &Call, ScalarEvolution &SE) const {
  if (Value *V = Leaf) {
    auto *A = dyn_cast<Argument>(V);
    return SE.getSCEV(A ? Call.getArgOperand(A->getArgNo()) : V);
  }
  const SCEV *Result = Operands.front().at(Call, SE);
  switch (Kind) {
  case scTruncate:
    return SE.getTruncateExpr(Result, Type);
  case scZeroExtend:
    return SE.getZeroExtendExpr(Result, Type);
  case scSignExtend:
    return SE.getSignExtendExpr(Result, Type);
  case scPtrToInt:
    return SE.getPtrToIntExpr(Result, Type);
  default:
    break;
  }
  for (const Formula &F : drop_begin(Operands)) {
    const SCEV *Next = F.at(Call, SE);
    switch (Kind) {
    case scAddExpr:
      Result = SE.getAddExpr(Result, Next);
      break;
    case scMulExpr:
      Result = SE.getMulExpr(Result, Next);
      break;
    case scUDivExpr:
      Result = SE.getUDivExpr(Result, Next);
      break;
    case scSMaxExpr:
      Result = SE.getSMaxExpr(Result, Next);
      break;
    case scUMaxExpr:
      Result = SE.getUMaxExpr(Result, Next);
      break;
    case scSMinExpr:
      Result = SE.getSMinExpr(Result, Next);
      break;
    case scUMinExpr:
      Result = SE.getUMinExpr(Result, Next);
      break;
    default:
      llvm_unreachable("formulaOf makes no others");
    }
  }
  return Result;
}

namespace {

class Summariser {
public:
  Summariser(Function &F, FunctionAnalysisManager &FAM)
      : LI(FAM.getResult<LoopAnalysis>(F)), DT(FAM.getResult<DominatorTreeAnalysis>(F)),
        SE(F, FAM.getResult<TargetLibraryAnalysis>(F), FAM.getResult<AssumptionAnalysis>(F), DT, LI) {
    for (BasicBlock &BB : F)
      if (isa<ReturnInst>(BB.getTerminator()))
        Returns.push_back(&BB);
  }

  FunctionSummary Result;

  void look(Instruction &Access) {
    if (isa<AllocaInst>(getUnderlyingObject(plainPointer(&Access))))
      return; // the stack is in memory
    if (auto Found = summarise(Access))
      Result.Accesses.push_back(std::move(*Found));
  }

private:
  LoopInfo &LI;
  DominatorTree &DT;
  ScalarEvolution SE; ///< of our own: what is cached for later passes stays as it would be
  SmallVector<BasicBlock *, 2> Returns;

  std::nullopt_t fail(const char *Why) {
    Result.Why = Why;
    return std::nullopt;
  }

  std::optional<CalledAccess> summarise(Instruction &Access) {
    Loop *Inner = LI.getLoopFor(Access.getParent());
    Loop *Root = Inner ? Inner->getOutermostLoop() : nullptr;
    Linear Address;
    if (Root) {
      const char *Why = nullptr;
      auto Found = linearAddress(&Access, Root, SE, Why);
      if (!Found)
        return fail(Why);
      Address = std::move(*Found);
      if (Address.Index)
        return fail("the function looks the address up in memory");
    } else {
      const SCEV *Pointer = SE.getSCEV(plainPointer(&Access));
      Address.Base = SE.getPointerBase(Pointer);
      Address.Rest = SE.removePointerBase(Pointer);
    }
    auto Base = formulaOf(Address.Base), Rest = formulaOf(Address.Rest);
    if (!Base || !Rest || Base->Kind != scUnknown)
      return fail("the address is not made of the function's arguments");
    const DataLayout &DL = Access.getModule()->getDataLayout();
    CalledAccess A{std::move(*Base),
                   std::move(*Rest),
                   {},
                   int64_t(DL.getTypeStoreSize(getLoadStoreType(&Access)).getKnownMinValue()),
                   isa<StoreInst>(Access),
                   isConditional(Access, Inner)};
    for (auto &[L, Step] : Address.Strides) {
      const SCEV *Times = tripCountIn(L, Root, SE);
      auto Stride = formulaOf(Step);
      auto Count = Times ? formulaOf(Times) : std::nullopt;
      if (!Stride || !Count)
        return fail("how far the function goes is not made of its arguments");
      A.Loops.push_back({std::move(*Stride), std::move(*Count)});
    }
    return A;
  }

  bool isConditional(Instruction &Access, Loop *Inner) {
    BasicBlock *BB = Access.getParent();
    if (Inner)
      return !Inner->getLoopLatch() || !DT.dominates(BB, Inner->getLoopLatch());
    return !all_of(Returns, [&](BasicBlock *Return) { return DT.dominates(BB, Return); });
  }
};

bool isCalledInLoop(Function &F, FunctionAnalysisManager &FAM) {
  return any_of(F.uses(), [&](Use &U) {
    auto *Call = dyn_cast<CallBase>(U.getUser());
    if (!Call || !Call->isCallee(&U))
      return false;
    return FAM.getResult<LoopAnalysis>(*Call->getFunction()).getLoopFor(Call->getParent()) != nullptr;
  });
}

bool callsItself(const Function &F) {
  return any_of(F.users(), [&](const User *U) {
    auto *Call = dyn_cast<CallBase>(U);
    return Call && Call->getFunction() == &F;
  });
}

FunctionSummary summarise(Function &F, FunctionAnalysisManager &FAM) {
  FunctionSummary None;
  if (callsItself(F)) {
    None.Why = "the function calls itself";
    return None;
  }
  SmallVector<Instruction *, 16> Accesses;
  for (Instruction &I : instructions(F))
    if (plainPointer(&I))
      Accesses.push_back(&I);
  if (Accesses.size() > MostAccesses) {
    None.Why = "the function has too many references";
    return None;
  }
  Summariser S(F, FAM);
  for (Instruction *I : Accesses)
    S.look(*I);
  return std::move(S.Result);
}

} // namespace

Summaries SummariesAnalysis::run(Module &M, ModuleAnalysisManager &MAM) {
  auto &FAM = MAM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
  Summaries Result;
  if (M.getDataLayout().getIndexSizeInBits(0) != 64)
    return Result; // formulas are added to pointers
  for (Function &F : M)
    if (!F.isDeclaration() && !F.isInterposable() && isCalledInLoop(F, FAM))
      Result.Functions->insert({&F, summarise(F, FAM)});
  return Result;
}

} // namespace runahead
