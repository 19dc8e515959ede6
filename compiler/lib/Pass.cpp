//===- Pass.cpp - one function at a time ----------------------------------===//
#include "Runahead/Pass.h"
#include "Runahead/Emit.h"
#include "Runahead/Sites.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
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
}

PreservedAnalyses OutOfCorePass::run(Function &F, FunctionAnalysisManager &FAM) {
  if (skip(F))
    return PreservedAnalyses::all();
  auto &LI = FAM.getResult<LoopAnalysis>(F);
  if (LI.empty())
    return PreservedAnalyses::all();
  auto &SE = FAM.getResult<ScalarEvolutionAnalysis>(F);
  auto &DT = FAM.getResult<DominatorTreeAnalysis>(F);
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(F);

  // Preheaders and single latches; the vectoriser, which comes next, would make
  // them too, so a loop that is left alone compiles to the same code.
  auto &AC = FAM.getResult<AssumptionAnalysis>(F);
  bool Changed = false;
  SmallVector<Loop *, 8> Tops(LI.begin(), LI.end());
  for (Loop *L : Tops)
    Changed |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);

  SmallVector<Site, 4> Sites;
  for (Site &S : findSites(F, LI, SE, DT, ORE)) {
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
