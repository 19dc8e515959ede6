//===- Pass.cpp - one function at a time ----------------------------------===//
#include "Runahead/Pass.h"
#include "Runahead/Emit.h"
#include "Runahead/Sites.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace runahead {

/// Functions whose loops must not be touched, or are never worth it.
static bool skip(const Function &F) {
  return F.isDeclaration() || F.hasOptNone() || F.hasMinSize() ||
         F.hasFnAttribute(Attribute::Naked) || F.isPresplitCoroutine() ||
         F.getName().starts_with("runahead_");
}

static void remarkOnSite(const Site &S, OptimizationRemarkEmitter &ORE) {
  unsigned Indirect = 0, Releasable = 0;
  for (const Reference &R : S.References) {
    Indirect += R.Address.Index.has_value();
    Releasable += !R.Address.Index;
  }
  ORE.emit([&] {
    return OptimizationRemark("runahead", "Prefetch", S.root()->getStartLoc(),
                              S.root()->getHeader())
           << "prefetch inserted for " << ore::NV("References", S.References.size())
           << " groups of references (" << ore::NV("Indirect", Indirect)
           << " indirect, release for up to " << ore::NV("Releasable", Releasable)
           << ") over " << ore::NV("Levels", S.Levels.size()) << " loop levels"
           << (S.Stream ? ", running on past the end of this inner loop" : "");
  });
  for (auto &[Call, Count] : S.Calls)
    ORE.emit([&, Call = Call, Count = Count] {
      return OptimizationRemark("runahead", "Call", Call)
             << "prefetch inserted for " << ore::NV("References", Count)
             << " references inside the called function "
             << ore::NV("Callee", Call->getCalledFunction());
    });
}

/// Loops that only copy or set memory are calls by now, and the program has some of its own:
/// the run-time layer goes through the long ones in pieces (runtime/copy.c). What is known to
/// be short (LONG_COPY there) stays as it is.
static bool replaceLongCopies(Function &F, OptimizationRemarkEmitter &ORE) {
  constexpr uint64_t Long = 1 << 20;
  SmallVector<MemIntrinsic *, 4> Copies;
  for (Instruction &I : instructions(F)) {
    auto *Copy = dyn_cast<MemIntrinsic>(&I);
    // By their numbers: the kinds that must stay inline have the same classes.
    if (!Copy || Copy->isVolatile() ||
        (Copy->getIntrinsicID() != Intrinsic::memcpy && Copy->getIntrinsicID() != Intrinsic::memset))
      continue;
    if (Copy->getDestAddressSpace() != 0 ||
        (isa<MemCpyInst>(Copy) && cast<MemCpyInst>(Copy)->getSourceAddressSpace() != 0))
      continue;
    auto *Length = dyn_cast<ConstantInt>(Copy->getLength());
    if (!Length || Length->getValue().uge(Long))
      Copies.push_back(Copy);
  }
  if (Copies.empty())
    return false;
  Module &M = *F.getParent();
  LLVMContext &C = M.getContext();
  Type *Ptr = PointerType::getUnqual(C), *I32 = Type::getInt32Ty(C), *I64 = Type::getInt64Ty(C),
       *Void = Type::getVoidTy(C);
  for (MemIntrinsic *Copy : Copies) {
    ORE.emit([&] {
      return OptimizationRemark("runahead", "Copy", Copy)
             << "a copy goes through the run-time layer";
    });
    IRBuilder<> B(Copy);
    Value *Length = B.CreateZExtOrTrunc(Copy->getLength(), I64);
    CallInst *Call;
    if (auto *Set = dyn_cast<MemSetInst>(Copy))
      Call = B.CreateCall(
          M.getOrInsertFunction("runahead_ooc_set", FunctionType::get(Void, {Ptr, I32, I64}, false)),
          {Set->getDest(), B.CreateZExt(Set->getValue(), I32), Length});
    else
      Call = B.CreateCall(
          M.getOrInsertFunction("runahead_ooc_copy", FunctionType::get(Void, {Ptr, Ptr, I64}, false)),
          {Copy->getDest(), cast<MemCpyInst>(Copy)->getSource(), Length});
    Call->addFnAttr(Attribute::NoUnwind);
    Call->addFnAttr(Attribute::WillReturn);
    Call->setMemoryEffects(MemoryEffects::inaccessibleOrArgMemOnly());
    Copy->eraseFromParent();
  }
  return true;
}

PreservedAnalyses OutOfCorePass::run(Function &F, FunctionAnalysisManager &FAM) {
  if (skip(F))
    return PreservedAnalyses::all();
  bool Changed = replaceLongCopies(F, FAM.getResult<OptimizationRemarkEmitterAnalysis>(F));
  if (Changed) {
    PreservedAnalyses Kept;
    Kept.preserveSet<CFGAnalyses>();
    FAM.invalidate(F, Kept);
  }
  auto &LI = FAM.getResult<LoopAnalysis>(F);
  if (LI.empty())
    return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  auto &SE = FAM.getResult<ScalarEvolutionAnalysis>(F);
  auto &DT = FAM.getResult<DominatorTreeAnalysis>(F);
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(F);

  // Preheaders and single latches; the vectoriser, which comes next, would make
  // them too, so a loop that is left alone compiles to the same code.
  auto &AC = FAM.getResult<AssumptionAnalysis>(F);
  SmallVector<Loop *, 8> Tops(LI.begin(), LI.end());
  for (Loop *L : Tops)
    Changed |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);

  const Summaries *Called = FAM.getResult<ModuleAnalysisManagerFunctionProxy>(F)
                                .getCachedResult<SummariesAnalysis>(*F.getParent());
  SmallVector<Site, 4> Sites;
  for (Site &S : findSites(F, LI, SE, DT, Called, ORE)) {
    const char *Why = nullptr;
    if (Emitter::canEmit(S, Why)) {
      remarkOnSite(S, ORE);
      Sites.push_back(std::move(S));
      continue;
    }
    ORE.emit([&] {
      return OptimizationRemarkMissed("runahead", "Shape", S.root()->getStartLoc(),
                                      S.root()->getHeader())
             << "no prefetch: " << ore::NV("Reason", Why);
    });
  }
  if (Sites.empty())
    return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();

  for (Site &S : Sites)
    formLCSSARecursively(*S.root(), DT, &LI, &SE);
  RuntimeInterface Runtime(*F.getParent());
  Emitter(F, LI, DT, SE, Runtime).emit(Sites);
  return PreservedAnalyses::none();
}

} // namespace runahead
