//===- Flow.cpp - changes of the control flow -----------------------------===//
#include "Runahead/Flow.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace runahead {

Value *noPhis(PHINode &) { llvm_unreachable("a new block has no PHIs"); }

static void addEntries(BasicBlock *To, BasicBlock *From, ByEdge Value) {
  for (PHINode &Phi : To->phis())
    Phi.addIncoming(Value(Phi), From);
}

BranchInst *addEdge(BasicBlock *From, Value *Condition, BasicBlock *To, ByEdge Value,
                    DomTreeUpdater *DTU, MDNode *Weights) {
  auto *Old = cast<BranchInst>(From->getTerminator());
  assert(Old->isUnconditional() && Old->getSuccessor(0) != To && "not a new edge");
  addEntries(To, From, Value);
  BranchInst *New = IRBuilder<>(Old).CreateCondBr(Condition, To, Old->getSuccessor(0), Weights);
  Old->eraseFromParent();
  if (DTU)
    DTU->applyUpdates({{DominatorTree::Insert, From, To}});
  return New;
}

void moveEdge(BasicBlock *From, BasicBlock *Old, BasicBlock *New, ByEdge Value,
              DomTreeUpdater *DTU) {
  assert(count(successors(From), Old) == 1 && !is_contained(successors(From), New) &&
         "not one edge, or not a new one");
  addEntries(New, From, Value);
  Old->removePredecessor(From, /*KeepOneInputPHIs=*/true);
  From->getTerminator()->replaceSuccessorWith(Old, New);
  if (DTU)
    DTU->applyUpdates({{DominatorTree::Insert, From, New}, {DominatorTree::Delete, From, Old}});
}

BasicBlock *insertOnEdge(BasicBlock *From, BasicBlock *To, const Twine &Name) {
  assert(count(successors(From), To) == 1 && "not one edge");
  auto *Between = BasicBlock::Create(To->getContext(), Name, To->getParent(), To);
  BranchInst::Create(To, Between)->setDebugLoc(From->getTerminator()->getDebugLoc());
  From->getTerminator()->replaceSuccessorWith(To, Between);
  To->replacePhiUsesWith(From, Between);
  return Between;
}

void addCopiedEdges(BasicBlock *Exit, const ValueToValueMapTy &Copies) {
  for (PHINode &Phi : Exit->phis())
    for (unsigned I = 0, E = Phi.getNumIncomingValues(); I < E; ++I) {
      auto Block = Copies.find(Phi.getIncomingBlock(I));
      if (Block == Copies.end())
        continue;
      Value *V = Phi.getIncomingValue(I);
      auto Copied = Copies.find(V);
      Phi.addIncoming(Copied == Copies.end() ? V : cast<Value>(&*Copied->second),
                      cast<BasicBlock>(&*Block->second));
    }
}

} // namespace runahead
