//===- Clone.cpp - innermost loops: as they were, and in strips -----------===//
//
// The innermost loop keeps its form for the times when there is nothing to do.
// Beside it stands a second version:
//
//   for (done = 0;;) {                       the strip loop
//     last = min(step(nest, ..., done) - 1, iterations - 1)
//     for (k = done; ; ++k) { body; if (k == last) break; }
//     if (last == iterations - 1) break;
//     done = last + 1
//   }
//
// Its inner loop is free of calls and has a trip count, so it vectorises as the
// original does. A loop whose trip count nobody knows gets a call behind a test
// at its head instead: such loops are not vectorised anyway.
//
//===----------------------------------------------------------------------===//
#include "Runahead/Emit.h"
#include "runahead_abi.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace llvm;

namespace runahead {

/// Blocks outside the loop that a block inside dominated can now be reached from
/// the copy as well: the block before both versions dominates them.
static void raiseDominatorsOfExits(Loop *L, BasicBlock *Before, DominatorTree &DT) {
  SmallVector<BasicBlock *, 8> Outside;
  for (BasicBlock *BB : L->blocks())
    for (DomTreeNode *Child : DT.getNode(BB)->children())
      if (!L->contains(Child->getBlock()))
        Outside.push_back(Child->getBlock());
  for (BasicBlock *BB : Outside)
    DT.changeImmediateDominator(BB, Before);
}

void Emitter::emitStrips(const Site &S, const Guard &G) {
  Loop *L = S.innermost();
  unsigned Level = S.Levels.size() - 1;
  // The trip count must be exact here, not a guess.
  const SCEV *Taken = SE.getBackedgeTakenCount(L);
  bool Countable = !isa<SCEVCouldNotCompute>(Taken) && L->getExitingBlock() &&
                   L->getExitingBlock() == L->getLoopLatch() &&
                   isa<BranchInst>(L->getLoopLatch()->getTerminator()) &&
                   SE.getTypeSizeInBits(Taken->getType()) <= 64;

  BasicBlock *Before = L->getLoopPreheader();
  BasicBlock *Original = SplitBlock(Before, Before->getTerminator(), &DT, &LI);
  if (Countable && !Expander.isSafeToExpandAt(Taken, Original->getTerminator()))
    Countable = false;
  ValueToValueMapTy Map;
  SmallVector<BasicBlock *, 8> Blocks;
  Loop *Copy = cloneLoopWithPreheader(Original, Before, L, Map, ".ooc", &LI, &DT, Blocks);
  remapInstructionsInBlocks(Blocks, Map);
  auto *CopyPreheader = cast<BasicBlock>(Map[Original]);

  SmallVector<BasicBlock *, 4> Exits;
  L->getUniqueExitBlocks(Exits);
  for (BasicBlock *Exit : Exits)
    for (PHINode &Phi : Exit->phis())
      for (unsigned I = 0, E = Phi.getNumIncomingValues(); I < E; ++I) {
        auto Block = Map.find(Phi.getIncomingBlock(I));
        if (Block == Map.end())
          continue;
        Value *V = Phi.getIncomingValue(I);
        auto Copied = Map.find(V);
        Phi.addIncoming(Copied == Map.end() ? V : cast<Value>(&*Copied->second),
                        cast<BasicBlock>(&*Block->second));
      }
  raiseDominatorsOfExits(L, Before, DT);

  IRBuilder<> B(Before->getTerminator());
  B.CreateCondBr(B.CreateICmpEQ(G.Level, B.getInt32(Level)), CopyPreheader, Original);
  Before->getTerminator()->eraseFromParent();

  Value *Counter = Map.lookup(G.Counters[Level]);
  if (!Countable) {
    hookHeader(Copy->getHeader(), CopyPreheader, Copy->getLoopLatch(), B.getInt64(0), G, Level,
               Counter);
    return;
  }
  B.SetInsertPoint(CopyPreheader->getTerminator());
  Value *Last = Expander.expandCodeFor(Taken, Taken->getType(), B.GetInsertPoint());
  stripMine(Copy, B.CreateZExtOrTrunc(Last, B.getInt64Ty(), "runahead.last"), G, Level, Counter);
}

void Emitter::stripMine(Loop *L, Value *Last, const Guard &G, unsigned Level, Value *Counter) {
  LLVMContext &C = F.getContext();
  BasicBlock *Preheader = L->getLoopPreheader(), *Header = L->getHeader(),
             *Latch = L->getLoopLatch();
  auto *Back = cast<BranchInst>(Latch->getTerminator());
  unsigned ExitSide = Back->getSuccessor(0) == Header ? 1 : 0;
  BasicBlock *Exit = Back->getSuccessor(ExitSide);

  auto *StripHead = BasicBlock::Create(C, "runahead.strip", &F, Header);
  auto *StripEnd = BasicBlock::Create(C, "runahead.strip.end", &F, Exit);
  Preheader->getTerminator()->replaceSuccessorWith(Header, StripHead);

  // Head of a strip: every value that the loop carries, and the call.
  IRBuilder<> B(StripHead);
  B.SetCurrentDebugLocation(Back->getDebugLoc());
  SmallVector<std::pair<PHINode *, PHINode *>, 8> Carried; // (inner, strip)
  Value *Done = nullptr;
  for (PHINode &Inner : Header->phis()) {
    PHINode *Strip = B.CreatePHI(Inner.getType(), 2, Inner.getName() + ".strip");
    Strip->addIncoming(Inner.getIncomingValueForBlock(Preheader), Preheader);
    Carried.push_back({&Inner, Strip});
    if (&Inner == Counter)
      Done = Strip;
  }
  SmallVector<Value *, 4> Counters(G.Counters.begin(), G.Counters.begin() + Level);
  Counters.push_back(Done);
  Value *Next = Runtime.step(B, G.Nest, Counters);
  // step returns more than Done; whatever it returns, the strip is not empty and
  // does not pass the end.
  Value *End = B.CreateBinaryIntrinsic(Intrinsic::umax, B.CreateSub(Next, B.getInt64(1)), Done);
  End = B.CreateBinaryIntrinsic(Intrinsic::umin, End, Last, nullptr, "runahead.end");
  B.CreateBr(Header);
  for (auto &[Inner, Strip] : Carried) {
    unsigned I = Inner->getBasicBlockIndex(Preheader);
    Inner->setIncomingBlock(I, StripHead);
    Inner->setIncomingValue(I, Strip);
  }

  // The body's end: leave at the end of the strip.
  B.SetInsertPoint(Back);
  Value *Stop = B.CreateICmpEQ(Counter, End);
  Back->setCondition(ExitSide == 0 ? Stop : B.CreateNot(Stop));
  Back->setSuccessor(ExitSide, StripEnd);

  // End of a strip: hand the values on, or out.
  B.SetInsertPoint(StripEnd);
  auto Leave = [&](Value *V) -> Value * {
    auto *I = dyn_cast<Instruction>(V);
    if (!I || !L->contains(I))
      return V;
    PHINode *Phi = B.CreatePHI(V->getType(), 1, V->getName() + ".lcssa");
    Phi->addIncoming(V, Latch);
    return Phi;
  };
  for (auto &[Inner, Strip] : Carried)
    Strip->addIncoming(Leave(Inner->getIncomingValueForBlock(Latch)), StripEnd);
  for (PHINode &Phi : Exit->phis()) {
    int I = Phi.getBasicBlockIndex(Latch);
    if (I < 0)
      continue;
    Phi.setIncomingValue(I, Leave(Phi.getIncomingValue(I)));
    Phi.setIncomingBlock(I, StripEnd);
  }
  B.CreateCondBr(B.CreateICmpEQ(End, Last), Exit, StripHead);
}

} // namespace runahead
