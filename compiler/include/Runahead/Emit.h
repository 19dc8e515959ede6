//===- Emit.h - putting the calls into the program --------------*- C++ -*-===//
//
// For every site:
//
//   root's preheader   if (armed) nest = enter(site, values)        (Emit.cpp)
//   beside the nest    a copy of it, taken when the nest is active  (Clone.cpp)
//   an outer level     if (k >= next) next = step(nest, counters)   (Emit.cpp)
//   the innermost      strips with the call between them            (Clone.cpp)
//
// With the run-time layer disarmed, or a nest that is not worth it, the program
// runs its own loops and pays a test before each nest. A nest that has another
// site inside is not copied, lest copies hold copies: its outer loops get their
// hooks in place.
//
//===----------------------------------------------------------------------===//
#ifndef RUNAHEAD_EMIT_H
#define RUNAHEAD_EMIT_H

#include "Runahead/Compat.h"
#include "Runahead/Sites.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"

namespace runahead {

/// The run-time layer as a module sees it.
class RuntimeInterface {
public:
  explicit RuntimeInterface(llvm::Module &M);
  llvm::Value *armed(llvm::IRBuilder<> &B) const;
  llvm::CallInst *enter(llvm::IRBuilder<> &B, llvm::Value *Site, llvm::Value *Values,
                        llvm::Value *Previous) const;
  llvm::CallInst *step(llvm::IRBuilder<> &B, llvm::Value *Nest,
                       llvm::ArrayRef<llvm::Value *> Counters) const;
  llvm::GlobalVariable *siteTable(const Site &S, llvm::StringRef Where) const;

private:
  llvm::Module &M;
  llvm::FunctionCallee Enter, Step;
  llvm::Constant *Armed;
};

/// What the guard before a root leaves for the loops inside.
struct Guard {
  llvm::Value *Nest;  ///< null when the site is idle
  llvm::Value *Level; ///< i32: the level that wants to be called
};

class Emitter {
public:
  Emitter(llvm::Function &F, llvm::LoopInfo &LI, llvm::DominatorTree &DT,
          llvm::ScalarEvolution &SE, const RuntimeInterface &Runtime);
  /// True when every loop of the site has the shape that the emitter needs.
  static bool canEmit(const Site &S, llvm::ScalarEvolution &SE, const char *&Why);
  /// Guards of all sites first, while SCEV still describes the code, then the loops.
  void emit(llvm::ArrayRef<Site> Sites);

private:
  /// The loops that get the calls: the copy's, or the site's own.
  struct Copy {
    llvm::SmallVector<llvm::Loop *, 4> Levels;
    llvm::Value *Last = nullptr; ///< innermost's iterations less one, if countable
  };

  Guard emitGuard(const Site &S);
  Copy copyNest(const Site &S, const Guard &G);
  void emitCalls(const Copy &C, const Guard &G);
  void hookHeader(llvm::Loop *L, llvm::Value *Start, const Guard &G,
                  llvm::ArrayRef<llvm::Value *> Counters);
  void stripMine(llvm::Loop *L, llvm::Value *Last, const Guard &G, unsigned Level,
                 llvm::ArrayRef<llvm::Value *> AllCounters);
  llvm::Value *fillValues(const Site &S, llvm::IRBuilder<> &B);
  llvm::Value *insideWindow(const Site &S, llvm::IRBuilder<> &B, llvm::Value *Nest);
  llvm::Value *address(const Linear &Address, llvm::IRBuilder<> &B);
  llvm::Value *expand(const llvm::SCEV *S, llvm::IRBuilder<> &B);
  llvm::AllocaInst *scratch(llvm::Type *T, const llvm::Twine &Name);

  llvm::Function &F;
  llvm::LoopInfo &LI;
  llvm::DominatorTree &DT;
  llvm::ScalarEvolution &SE;
  const RuntimeInterface &Runtime;
  runahead::Expander Expander;
  llvm::AllocaInst *Values = nullptr; ///< shared by all sites of the function
};

} // namespace runahead
#endif
