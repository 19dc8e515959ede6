//===- Emit.h - putting the calls into the program --------------*- C++ -*-===//
//
// For every site:
//
//   root's preheader   if (armed) nest = enter(site, values)        (Emit.cpp)
//   an outer level     if (k >= next) next = step(nest, counters)   (Emit.cpp)
//   the innermost      strips with the call between them            (Clone.cpp)
//   small nests        all this in a copy, taken when it is wanted  (Clone.cpp)
//
// With the run-time layer disarmed, or a nest that is not worth it, the program
// runs its own small loops and pays a test before each, and one an iteration of the
// outer loops of large nests.
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
  llvm::GlobalVariable *siteTable(const Site &S, llvm::StringRef Where,
                                  llvm::ArrayRef<llvm::Constant *> Known);
  /// Takes all tables back; no code refers to them any more.
  void removeTables();

private:
  llvm::Module &M;
  llvm::SmallVector<llvm::GlobalVariable *, 16> Tables; ///< each behind those it refers to
  llvm::FunctionCallee Enter, Step;
  llvm::Constant *Armed;
};

/// What the guard before a root leaves for the loops inside.
struct Guard {
  llvm::Value *Nest;  ///< null when the site is idle
  llvm::Value *Level; ///< i32: the level that wants to be called
  llvm::CallInst *Entered;   ///< where they come from, when the layer is armed
  llvm::Value *EnteredLevel;
};

class Emitter {
public:
  Emitter(llvm::Function &F, llvm::LoopInfo &LI, llvm::DominatorTree &DT,
          llvm::ScalarEvolution &SE, RuntimeInterface &Runtime);
  /// True when every loop of the site has the shape that the emitter needs.
  static bool canEmit(const Site &S, const char *&Why);
  /// Guards of all sites first, while the code is as findSites saw it, then the loops.
  ///
  /// The code is valid, and what SCEV has kept of it true, whenever SCEV is asked: the
  /// blocks of a guard are there before its values are computed, and after each copy of a
  /// loop all is forgotten.
  void emit(llvm::ArrayRef<Site> Sites);

private:
  /// The loops that get the calls: the site's own, or from some level on copies.
  struct Copy {
    llvm::SmallVector<llvm::Loop *, 4> Levels;
    llvm::Value *Last = nullptr; ///< innermost's iterations less one, if countable
    bool AtInnermost = false;    ///< a copy that runs only to be called at its innermost
  };

  llvm::Value *lastIteration(llvm::Loop *Inner);
  Guard emitGuard(const Site &S);
  unsigned copyFrom(const Site &S, llvm::ArrayRef<Site> All) const;
  Copy copyNest(const Site &S, unsigned From, Guard &G);
  bool branchFromGuard(llvm::BasicBlock *Join, llvm::BasicBlock *Original,
                       llvm::BasicBlock *Copied, unsigned Levels, Guard &G);
  bool stripMinable(const llvm::Loop *Inner) const;
  void emitCalls(const Copy &C, const Guard &G);
  void hookHeader(llvm::Loop *L, llvm::Value *Start, const Guard &G,
                  llvm::ArrayRef<llvm::Value *> Counters);
  void stripMine(const Copy &Of, const Guard &G, llvm::ArrayRef<llvm::Value *> AllCounters);
  llvm::SmallVector<llvm::Constant *, 64> fillValues(const Site &S, llvm::IRBuilder<> &B);
  struct Window;
  std::optional<Window> windowOf(const Site &S) const;
  llvm::Value *insideWindow(const Window &W, llvm::IRBuilder<> &B, llvm::Value *Nest);
  llvm::AllocaInst *scratch(llvm::Type *T, const llvm::Twine &Name);

  llvm::Function &F;
  llvm::LoopInfo &LI;
  llvm::DominatorTree &DT;
  llvm::ScalarEvolution &SE;
  RuntimeInterface &Runtime;
  llvm::AllocaInst *Values = nullptr; ///< shared by all sites of the function
};

} // namespace runahead
#endif
