//===- Clone.cpp - copies of loops, and loops in strips -------------------===//
//
// A small nest keeps its form for the times when there is nothing to do, and the
// calls go into a copy beside it. Of a large nest only the inner levels are copied,
// or nothing: there a test an iteration of an outer loop is nothing beside the loops
// inside. The innermost loop is cut into strips:
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
// at its head instead: such loops are not vectorised anyway. So does the copy of a loop
// that is told how often to run only at each entry (the rows of a sparse matrix): strips
// and vectors around each short row took a twentieth of CG's compile time, and no time
// less to run (CG, and sums over rows of 200 and of 5000 bytes or ints, told to have
// little memory).
//
//===----------------------------------------------------------------------===//
#include "Runahead/Emit.h"
#include "Runahead/Flow.h"
#include "runahead_abi.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

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

/// The copy waits for the disk: it is to be small, not unrolled.
static void keepSmall(Loop *L) {
  LLVMContext &C = L->getHeader()->getContext();
  SmallVector<Metadata *, 6> Operands{nullptr}; // the first refers to the node itself
  if (MDNode *Old = L->getLoopID())
    for (const MDOperand &O : drop_begin(Old->operands()))
      Operands.push_back(O.get());
  auto One = ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(C), 1));
  Operands.push_back(MDNode::get(C, {MDString::get(C, "llvm.loop.interleave.count"), One}));
  Operands.push_back(MDNode::get(C, MDString::get(C, "llvm.loop.unroll.disable")));
  MDNode *ID = MDNode::getDistinct(C, Operands);
  ID->replaceOperandWith(0, ID);
  L->setLoopID(ID);
}

/// A nest that is copied whole: the guard's branches lead to the right version at once,
/// and an idle program tests the flag and nothing else (a row of a sparse matrix is some
/// 30 ns: a second test would be felt). The join stays for those who come by it idle. False
/// when something else stands or merges in it.
bool Emitter::branchFromGuard(BasicBlock *Join, BasicBlock *Original, BasicBlock *Copied,
                              unsigned Levels, Guard &G) {
  BasicBlock *Active = G.Entered->getParent();
  auto Ours = [&](PHINode &Phi) {
    return (&Phi == G.Nest || &Phi == G.Level) && Phi.use_empty();
  };
  if (&*Join->getFirstNonPHIOrDbg() != Join->getTerminator() || !all_of(Join->phis(), Ours) ||
      Active->getSingleSuccessor() != Join)
    return false;
  moveEdge(Active, Join, Original, noPhis, nullptr);
  IRBuilder<> B(Active->getTerminator());
  addEdge(Active, B.CreateICmpULT(G.EnteredLevel, B.getInt32(Levels), "runahead.active"), Copied,
          noPhis, nullptr);
  DT.recalculate(F);
  G.Nest = G.Entered;
  G.Level = G.EnteredLevel;
  return true;
}

/// Copies the nest from the level `From` inwards: taken when the level that
/// prefetches is among those.
Emitter::Copy Emitter::copyNest(const Site &S, unsigned From, Guard &G) {
  Copy Result{S.Levels};
  if (From == S.Levels.size()) {
    Result.Last = lastIteration(S.innermost());
    return Result;
  }
  Loop *Root = S.Levels[From];
  bool Strips = tripCountIn(S.innermost(), S.Stream ? S.root()->getParentLoop() : S.root(), SE);
  // What leaves the loop does so by PHIs, which take the copy's values as well.
  formLCSSARecursively(*Root, DT, &LI, &SE);
  BasicBlock *Before = Root->getLoopPreheader();
  BasicBlock *Original = SplitBlock(Before, Before->getTerminator(), &DT, &LI);
  ValueToValueMapTy Map;
  SmallVector<BasicBlock *, 16> Blocks;
  cloneLoopWithPreheader(Original, Before, Root, Map, ".ooc", &LI, &DT, Blocks);
  remapInstructionsInBlocks(Blocks, Map);

  SmallVector<BasicBlock *, 4> Exits;
  Root->getUniqueExitBlocks(Exits);
  for (BasicBlock *Exit : Exits)
    addCopiedEdges(Exit, Map);
  raiseDominatorsOfExits(Root, Before, DT);

  auto *Copied = cast<BasicBlock>(Map[Original]);
  if (From > 0 || !branchFromGuard(Before, Original, Copied, S.Levels.size(), G)) {
    IRBuilder<> B(Before->getTerminator());
    // Above `From` the levels are called in place.
    Value *Active = B.CreateICmpULT(B.CreateSub(G.Level, B.getInt32(From)),
                                    B.getInt32(S.Levels.size() - From), "runahead.active");
    // The tree has the copy below Before already.
    addEdge(Before, Active, Copied, noPhis, nullptr,
            MDBuilder(F.getContext()).createBranchWeights(1, 1000));
  }
  // A value of the loop no longer comes to what is behind it, where it did by any path.
  SE.forgetAllLoops();

  for (unsigned I = From; I < S.Levels.size(); ++I)
    Result.Levels[I] = LI.getLoopFor(cast<BasicBlock>(Map[S.Levels[I]->getHeader()]));
  for (Loop *L : Result.Levels[From]->getLoopsInPreorder())
    if (L->isInnermost())
      keepSmall(L);
  Result.AtInnermost = From + 1 == S.Levels.size();
  if (Strips)
    Result.Last = lastIteration(Result.Levels.back());
  return Result;
}

bool Emitter::stripMinable(const Loop *Inner) const {
  const SCEV *Taken = SE.getBackedgeTakenCount(Inner);
  BasicBlock *Latch = Inner->getLoopLatch();
  return Inner->isInnermost() && !isa<SCEVCouldNotCompute>(Taken) &&
         Inner->getExitingBlock() == Latch && isa<BranchInst>(Latch->getTerminator()) &&
         SE.getTypeSizeInBits(Taken->getType()) <= 64;
}

/// The number of the loop's last iteration, computed before the loop; null unless it
/// can be cut into strips. Exact here, not a guess.
Value *Emitter::lastIteration(Loop *Inner) {
  if (!stripMinable(Inner))
    return nullptr;
  const SCEV *Taken = SE.getBackedgeTakenCount(Inner);
  IRBuilder<> At(Inner->getLoopPreheader()->getTerminator());
  Expander Expander(SE, *F.getParent());
  if (!Expander.isSafeToExpandAt(Taken, &*At.GetInsertPoint()))
    return nullptr;
  Value *Last = Expander.expandCodeFor(Taken, Taken->getType(), At.GetInsertPoint());
  Last = At.CreateZExtOrTrunc(Last, At.getInt64Ty(), "runahead.last");
  // A use of its own: what another loop counted is taken from either copy once that loop is copied, where it
  // is used.
  return isa<Constant>(Last) ? Last : At.CreateFreeze(Last, "runahead.last");
}

void Emitter::stripMine(const Copy &Of, const Guard &G, ArrayRef<Value *> AllCounters) {
  unsigned Level = Of.Levels.size() - 1;
  Loop *L = Of.Levels.back();
  Value *Last = Of.Last;
  Value *Counter = AllCounters[Level];
  BasicBlock *Preheader = L->getLoopPreheader(), *Header = L->getHeader(),
             *Latch = L->getLoopLatch();
  auto *Back = cast<BranchInst>(Latch->getTerminator());
  unsigned ExitSide = Back->getSuccessor(0) == Header ? 1 : 0;
  BasicBlock *StripHead = insertOnEdge(Preheader, Header, "runahead.strip");
  BasicBlock *StripEnd = insertOnEdge(Latch, Back->getSuccessor(ExitSide), "runahead.strip.end");
  BasicBlock *Exit = StripEnd->getSingleSuccessor();

  // Head of a strip: every value that the loop carries, and the call.
  IRBuilder<> B(StripHead, StripHead->begin());
  B.SetCurrentDebugLocation(Back->getDebugLoc());
  SmallVector<std::pair<PHINode *, PHINode *>, 8> Carried; // (inner, strip)
  Value *Done = nullptr;
  for (PHINode &Inner : Header->phis()) {
    PHINode *Strip = B.CreatePHI(Inner.getType(), 2, Inner.getName() + ".strip");
    unsigned I = Inner.getBasicBlockIndex(StripHead);
    Strip->addIncoming(Inner.getIncomingValue(I), Preheader);
    Inner.setIncomingValue(I, Strip);
    Carried.push_back({&Inner, Strip});
    if (&Inner == Counter)
      Done = Strip;
  }
  SmallVector<Value *, 4> Counters(AllCounters.begin(), AllCounters.begin() + Level);
  Counters.push_back(Done);
  Value *Next = nullptr;
  if (Of.AtInnermost) {
    Next = Runtime.step(B, G.Nest, Counters);
  } else {
    // Nothing to do, or at another level: then one strip is all.
    Value *Here = B.CreateICmpEQ(G.Level, B.getInt32(Level));
    Instruction *Call = SplitBlockAndInsertIfThen(Here, B.GetInsertPoint(), false);
    IRBuilder<> InCall(Call);
    InCall.SetCurrentDebugLocation(Back->getDebugLoc());
    Value *Stepped = Runtime.step(InCall, G.Nest, Counters);
    BasicBlock *Enter = Call->getSuccessor(0);
    B.SetInsertPoint(Enter, Enter->begin());
    PHINode *Phi = B.CreatePHI(B.getInt64Ty(), 2, "runahead.next");
    Phi->addIncoming(B.getInt64(INT64_MAX), StripHead);
    Phi->addIncoming(Stepped, Call->getParent());
    Next = Phi;
  }
  // step returns more than Done; whatever it returns, the strip is not empty and
  // does not pass the end.
  Value *End = B.CreateBinaryIntrinsic(Intrinsic::umax, B.CreateSub(Next, B.getInt64(1)), Done);
  End = B.CreateBinaryIntrinsic(Intrinsic::umin, End, Last, nullptr, "runahead.end");

  // The body's end: leave at the end of the strip.
  B.SetInsertPoint(Back);
  Value *Stop = B.CreateICmpEQ(Counter, End);
  Back->setCondition(ExitSide == 0 ? Stop : B.CreateNot(Stop));

  // End of a strip: hand the values on, or out.
  B.SetInsertPoint(StripEnd, StripEnd->begin());
  auto Leave = [&](Value *V) -> Value * {
    auto *I = dyn_cast<Instruction>(V);
    if (!I || !L->contains(I))
      return V;
    PHINode *Phi = B.CreatePHI(V->getType(), 1, V->getName() + ".lcssa");
    Phi->addIncoming(V, Latch);
    return Phi;
  };
  SmallVector<Value *, 8> HandedOn;
  for (auto &[Inner, Strip] : Carried)
    HandedOn.push_back(Leave(Inner->getIncomingValueForBlock(Latch)));
  for (PHINode &Phi : Exit->phis()) {
    unsigned I = Phi.getBasicBlockIndex(StripEnd);
    Phi.setIncomingValue(I, Leave(Phi.getIncomingValue(I)));
  }
  // Away from the end, back to the head.
  B.SetInsertPoint(StripEnd->getTerminator());
  Value *More = B.CreateICmpNE(End, Last);
  auto Handed = HandedOn.begin();
  addEdge(StripEnd, More, StripHead, [&](PHINode &) { return *Handed++; }, nullptr);
}

} // namespace runahead
