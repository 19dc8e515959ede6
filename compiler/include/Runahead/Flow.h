//===- Flow.h - changes of the control flow ---------------------*- C++ -*-===//
//
// Every edge that the pass adds or moves goes through these functions, so that at any
// time each PHI has exactly one entry for each edge into its block, and the dominator
// tree is right where an updater is given. No block is ever removed: analyses keep
// tables by the addresses of blocks, and an address that is free is given out again.
//
//===----------------------------------------------------------------------===//
#ifndef RUNAHEAD_FLOW_H
#define RUNAHEAD_FLOW_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Analysis/DomTreeUpdater.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

namespace runahead {

/// What a PHI gets by an edge that is new.
using ByEdge = llvm::function_ref<llvm::Value *(llvm::PHINode &)>;
/// For a block of the pass's own making that has none.
llvm::Value *noPhis(llvm::PHINode &);

/// `From`, which led to one block, leads to `To` instead where Condition holds.
llvm::BranchInst *addEdge(llvm::BasicBlock *From, llvm::Value *Condition, llvm::BasicBlock *To,
                          ByEdge Value, llvm::DomTreeUpdater *DTU,
                          llvm::MDNode *Weights = nullptr);
/// The only edge from `From` to `Old` leads to `New`, the PHIs of `Old` forget it.
void moveEdge(llvm::BasicBlock *From, llvm::BasicBlock *Old, llvm::BasicBlock *New, ByEdge Value,
              llvm::DomTreeUpdater *DTU);
/// A new block, which holds nothing, in the only edge from `From` to `To`. Dominators and
/// loops are not kept up.
llvm::BasicBlock *insertOnEdge(llvm::BasicBlock *From, llvm::BasicBlock *To,
                               const llvm::Twine &Name);
/// `Exit` is reached from the copies of blocks as from the blocks themselves, with the
/// copied values.
void addCopiedEdges(llvm::BasicBlock *Exit, const llvm::ValueToValueMapTy &Copies);

} // namespace runahead
#endif
