//===- Pass.cpp - one function at a time ----------------------------------===//
#include "Runahead/Pass.h"
#include "Runahead/Emit.h"
#include "Runahead/SavedBody.h"
#include "Runahead/Sites.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include <cstdlib>

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
    return OptimizationRemark("runahead", "Prefetch", S.Start, S.root()->getHeader())
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

/// What the wrappers were told to link (tools/runahead-cc.in).
static bool isLinked(StringRef What) {
  const char *Linked = std::getenv("RUNAHEAD_LINKED");
  SmallVector<StringRef, 4> Words;
  StringRef(Linked ? Linked : "").split(Words, ' ');
  return is_contained(Words, What);
}

static bool isAllocator(StringRef Name) {
  return Name == "malloc" || Name == "calloc" || Name == "realloc" || Name == "aligned_alloc" ||
         Name == "memalign" || Name.starts_with("_Znw") || Name.starts_with("_Zna");
}

/// Where this memory is no region as things are, how it becomes one; else nothing.
static std::string wantsRegion(const Value *Object) {
  if (auto *Call = dyn_cast<CallBase>(Object)) {
    const Function *Callee = Call->getCalledFunction();
    if (!Callee || !isAllocator(Callee->getName()) || isLinked("heap"))
      return "";
    bool IsNew = Callee->getName().starts_with("_Z");
    return ("an array here is of " + (IsNew ? StringRef("new") : Callee->getName()) +
            ": it is in a region only if the program is linked with --runahead-heap")
        .str();
  }
  if (auto *Global = dyn_cast<GlobalVariable>(Object))
    if (!Global->isConstant() && !isLinked("static"))
      return (Global->getName() +
              " is a static array: it is in a region only if the program is linked with --runahead-static")
          .str();
  return "";
}

/// Before anything is changed: what is to be said of a site's memory, each once.
static SmallVector<std::string, 2> remarksOnMemory(const Site &S) {
  SmallVector<std::string, 2> Remarks;
  for (const Reference &R : S.References) {
    auto *Base = dyn_cast_or_null<SCEVUnknown>(R.Address.Base);
    if (!Base)
      continue;
    std::string Remark = wantsRegion(getUnderlyingObject(Base->getValue()));
    if (!Remark.empty() && !is_contained(Remarks, Remark))
      Remarks.push_back(std::move(Remark));
  }
  return Remarks;
}

/// Loops that only copy or set memory are calls by now, and the program has some of its own:
/// the run-time layer goes through the long ones in pieces (runtime/copy.c). What is known to
/// be short (LONG_COPY there) stays as it is.
static SmallVector<MemIntrinsic *, 4> longCopies(Function &F) {
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
  return Copies;
}

/// The call that takes the copy's place.
static CallInst *replaceCopy(MemIntrinsic *Copy) {
  Module &M = *Copy->getModule();
  LLVMContext &C = M.getContext();
  Type *Ptr = PointerType::getUnqual(C), *I32 = Type::getInt32Ty(C), *I64 = Type::getInt64Ty(C),
       *Void = Type::getVoidTy(C);
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
  return Call;
}

static void remarkOnCopy(CallInst *Call, OptimizationRemarkEmitter &ORE) {
  ORE.emit([&] {
    return OptimizationRemark("runahead", "Copy", Call)
           << "a copy goes through the run-time layer";
  });
}

static void missedFunction(Function &F, StringRef Name, StringRef Why, OptimizationRemarkEmitter &ORE) {
  ORE.emit([&] {
    return OptimizationRemarkMissed("runahead", Name, DiagnosticLocation(F.getSubprogram()),
                                    &F.getEntryBlock())
           << "no prefetch in this function: " << ore::NV("Reason", Why);
  });
}

/// The sites that the emitter can do; remarks on the others.
static SmallVector<Site, 4> emittableSites(Function &F, FunctionAnalysisManager &FAM) {
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(F);
  const Summaries *Called = FAM.getResult<ModuleAnalysisManagerFunctionProxy>(F)
                                .getCachedResult<SummariesAnalysis>(*F.getParent());
  SmallVector<Site, 4> Sites;
  for (Site &S : findSites(F, FAM.getResult<LoopAnalysis>(F), FAM.getResult<ScalarEvolutionAnalysis>(F),
                           FAM.getResult<DominatorTreeAnalysis>(F), Called, ORE)) {
    const char *Why = nullptr;
    if (Emitter::canEmit(S, Why)) {
      Sites.push_back(std::move(S));
      continue;
    }
    ORE.emit([&] {
      return OptimizationRemarkMissed("runahead", "Shape", S.Start, S.root()->getHeader())
             << "no prefetch: " << ore::NV("Reason", Why);
    });
  }
  return Sites;
}

/// As a fault of the emitter's would: a PHI that lacks an entry.
static void breakIt(Function &F) {
  for (BasicBlock &BB : F)
    for (PHINode &Phi : BB.phis()) {
      Phi.removeIncomingValue(0u, /*DeletePHIIfEmpty=*/false);
      return;
    }
}

PreservedAnalyses OutOfCorePass::run(Function &F, FunctionAnalysisManager &FAM) {
  if (skip(F))
    return PreservedAnalyses::all();
  SmallVector<MemIntrinsic *, 4> Copies = longCopies(F);
  if (Copies.empty() && FAM.getResult<LoopAnalysis>(F).empty())
    return PreservedAnalyses::all();
  if (!SavedBody::canSave(F)) {
    missedFunction(F, "Labels", "it takes the addresses of labels",
                   FAM.getResult<OptimizationRemarkEmitterAnalysis>(F));
    return PreservedAnalyses::all();
  }

  // Whatever is changed from here on is given back where it does not verify.
  std::optional<SavedBody> Before;
  SmallVector<CallInst *, 4> Copied;
  if (!Copies.empty()) {
    Before.emplace(F);
    for (MemIntrinsic *Copy : Copies)
      Copied.push_back(replaceCopy(Copy));
    PreservedAnalyses Kept;
    Kept.preserveSet<CFGAnalyses>();
    FAM.invalidate(F, Kept);
  }
  auto &LI = FAM.getResult<LoopAnalysis>(F);
  auto &SE = FAM.getResult<ScalarEvolutionAnalysis>(F);
  auto &DT = FAM.getResult<DominatorTreeAnalysis>(F);
  auto &AC = FAM.getResult<AssumptionAnalysis>(F);
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(F);

  // Preheaders and single latches; the vectoriser, which comes next, would make
  // them too, so a loop that is left alone compiles to the same code.
  bool Simplified = false;
  SmallVector<Loop *, 8> Tops(LI.begin(), LI.end());
  for (Loop *L : Tops)
    Simplified |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);

  std::optional<RuntimeInterface> Runtime;
  SmallVector<Site, 4> Sites = emittableSites(F, FAM);
  SmallVector<SmallVector<std::string, 2>, 4> OfMemory;
  for (const Site &S : Sites)
    OfMemory.push_back(remarksOnMemory(S));
  if (!Sites.empty()) {
    if (!Before)
      Before.emplace(F);
    Runtime.emplace(*F.getParent());
    Emitter(F, LI, DT, SE, *Runtime).emit(Sites);
  }
  if (!Before)
    return Simplified ? PreservedAnalyses::none() : PreservedAnalyses::all();

  if (Break)
    breakIt(F);
  // Without a stream: what is broken cannot always be printed.
  if (verifyFunction(F)) {
    Before->putBack();
    if (Runtime)
      Runtime->removeTables();
    missedFunction(F, "Invalid",
                   "what was made of it did not verify, so it stays as it was; please report this",
                   ORE);
  } else {
    for (CallInst *Call : Copied)
      remarkOnCopy(Call, ORE);
    for (const Site &S : Sites)
      remarkOnSite(S, ORE);
    for (auto [S, Remarks] : zip(Sites, OfMemory))
      for (const std::string &Remark : Remarks)
        ORE.emit([&, &S = S] {
          return OptimizationRemark("runahead", "Region", S.Start, S.root()->getHeader()) << Remark;
        });
  }
  AC.clear(); // assumptions were copied, or are others now; they are looked for anew
  return PreservedAnalyses::none();
}

} // namespace runahead
