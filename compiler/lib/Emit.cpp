//===- Emit.cpp - guards before nests, hooks in outer loops ---------------===//
#include "Runahead/Emit.h"
#include "Runahead/Flow.h"
#include "runahead_abi.h"
#include "llvm/Analysis/ConstantFolding.h"
#include "llvm/Analysis/DomTreeUpdater.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace runahead {

//===----------------------------------------------------------------------===//
// The run-time layer as a module sees it
//===----------------------------------------------------------------------===//

RuntimeInterface::RuntimeInterface(Module &M) : M(M) {
  LLVMContext &C = M.getContext();
  Type *Ptr = PointerType::getUnqual(C);
  Type *I64 = Type::getInt64Ty(C);
  // The calls read and write what they are given and their own state. They look
  // at the program's memory too, but only to guess: a store that moves across a
  // call spoils a hint at most. Anything stronger than this would stop the
  // optimiser from keeping values in registers across the calls.
  MemoryEffects Effects = MemoryEffects::inaccessibleOrArgMemOnly();
  AttrBuilder Attributes(C);
  Attributes.addMemoryAttr(Effects);
  Attributes.addAttribute(Attribute::NoUnwind);
  Attributes.addAttribute(Attribute::WillReturn);
  Attributes.addAttribute(Attribute::NoCallback);
  AttributeList List = AttributeList::get(C, AttributeList::FunctionIndex, Attributes);
  Enter = M.getOrInsertFunction("runahead_ooc_enter",
                                FunctionType::get(Ptr, {Ptr, Ptr, Ptr}, false), List);
  Step = M.getOrInsertFunction(
      "runahead_ooc_step", FunctionType::get(I64, {Ptr, I64, I64, I64, I64}, false), List);
  Armed = M.getOrInsertGlobal(RUNAHEAD_ARMED_SYMBOL, Type::getInt8Ty(C));
}

Value *RuntimeInterface::armed(IRBuilder<> &B) const {
  // Atomic: another thread may arm or disarm at any time; relaxed is enough.
  LoadInst *Load = B.CreateAlignedLoad(B.getInt8Ty(), Armed, Align(1), "runahead.armed");
  Load->setAtomic(AtomicOrdering::Monotonic);
  return B.CreateICmpNE(Load, B.getInt8(0));
}

CallInst *RuntimeInterface::enter(IRBuilder<> &B, Value *Site, Value *Values,
                                  Value *Previous) const {
  return B.CreateCall(Enter, {Site, Values, Previous}, "runahead.nest");
}

CallInst *RuntimeInterface::step(IRBuilder<> &B, Value *Nest, ArrayRef<Value *> Counters) const {
  SmallVector<Value *, 5> Arguments{Nest};
  Arguments.append(Counters.begin(), Counters.end());
  Arguments.resize(1 + RUNAHEAD_MAX_LEVELS, B.getInt64(0));
  return B.CreateCall(Step, Arguments, "runahead.next");
}

/// The loops inside the root that an address moves with and that are no levels.
static SmallVector<const Loop *, 4> boxesOf(const Site &S, const Reference &R) {
  SmallVector<const Loop *, 4> Boxes;
  for (auto &[L, Stride] : R.Address.Strides)
    if (!is_contained(S.Levels, L))
      Boxes.push_back(L);
  return Boxes;
}

/// `Known`: the values in order, null where the program gives them at run time.
GlobalVariable *RuntimeInterface::siteTable(const Site &S, StringRef Where,
                                            ArrayRef<Constant *> Known) {
  LLVMContext &C = M.getContext();
  Type *I8 = Type::getInt8Ty(C), *I16 = Type::getInt16Ty(C), *I32 = Type::getInt32Ty(C),
       *I64 = Type::getInt64Ty(C), *Ptr = PointerType::getUnqual(C);
  auto Int = [](Type *T, int64_t V) { return ConstantInt::getSigned(T, V); };
  auto Byte = [&](uint64_t V) { return ConstantInt::get(I8, V); };
  auto Private = [&](Constant *Init, bool IsConstant, const Twine &Name) {
    auto *Table = new GlobalVariable(M, Init->getType(), IsConstant, GlobalValue::PrivateLinkage,
                                     Init, Name);
    Tables.push_back(Table);
    return Table;
  };
  // Nothing where it is empty; without more room than it needs, and one for all that are equal.
  auto Packed = [&](Constant *Init, Type *Element, const Twine &Name) -> Constant * {
    if (Init->getType()->getArrayNumElements() == 0)
      return ConstantPointerNull::get(cast<PointerType>(Ptr));
    auto *Table = Private(Init, true, Name);
    Table->setAlignment(M.getDataLayout().getABITypeAlign(Element));
    Table->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
    return Table;
  };

  // struct runahead_reference
  auto *Shape = StructType::get(C, {I8, I8, I8, I8, I32, I32, I32});
  SmallVector<Constant *, 8> Shapes;
  for (const Reference &R : S.References) {
    uint64_t Flags = (R.Writes ? RUNAHEAD_WRITES : 0) |
                     (R.Called ? RUNAHEAD_CALLED : 0) |
                     (R.Conditional ? RUNAHEAD_CONDITIONAL : 0) |
                     (R.IsIndex ? RUNAHEAD_INDEX : 0);
    uint64_t IndexBytes = 0;
    if (const auto &Index = R.Address.Index) {
      Flags |= RUNAHEAD_INDIRECT | (Index->Signed ? RUNAHEAD_SIGNED : 0);
      IndexBytes = M.getDataLayout().getTypeStoreSize(Index->Load->getType());
    }
    Shapes.push_back(ConstantStruct::get(
        Shape, {Byte(Flags), Byte(boxesOf(S, R).size() + R.Address.Inside.size()), Byte(IndexBytes),
                Byte(R.IndexReference), Int(I32, R.IndexOffset), Int(I32, R.Low),
                Int(I32, R.High)}));
  }
  Constant *Table = ConstantArray::get(ArrayType::get(Shape, Shapes.size()), Shapes);
  Constant *Text = Packed(ConstantDataArray::getString(C, Where), I8, "runahead.where");

  SmallVector<uint8_t, 32> Forms((Known.size() + 3) / 4);
  SmallVector<uint16_t, 32> Small;
  SmallVector<Constant *, 32> Numbers;
  for (unsigned I = 0; I < Known.size(); ++I) {
    unsigned Form = RUNAHEAD_GIVEN;
    auto *Number = dyn_cast_or_null<ConstantInt>(Known[I]);
    if (Number && Number->isZero()) {
      Form = RUNAHEAD_ZERO;
    } else if (Number && Number->getValue().isSignedIntN(16)) {
      Form = RUNAHEAD_SMALL;
      Small.push_back(uint16_t(Number->getSExtValue()));
    } else if (Known[I]) {
      Form = RUNAHEAD_KNOWN;
      Numbers.push_back(Known[I]);
    }
    Forms[I / 4] |= Form << I % 4 * 2;
  }
  Constant *Values = ConstantArray::get(ArrayType::get(I64, Numbers.size()), Numbers);

  // struct runahead_site
  auto *Memory = ArrayType::get(I64, 24);
  auto *SiteType = StructType::get(C, {I32, I8, I8, I16, Ptr, Ptr, Ptr, Ptr, Ptr, I64, Memory});
  auto *Site = Private(
      ConstantStruct::get(SiteType,
                          {ConstantInt::get(I32, RUNAHEAD_ABI), Byte(S.Levels.size()),
                           Byte(S.References.size()),
                           ConstantInt::get(I16, S.Stream ? RUNAHEAD_STREAM : 0), Text,
                           Packed(Table, Shape, "runahead.references"),
                           Packed(ConstantDataArray::get(C, Forms), I8, "runahead.form"),
                           Packed(ConstantDataArray::get(C, Small), I16, "runahead.small"),
                           Packed(Values, I64, "runahead.known"),
                           ConstantInt::get(I64, Known.size()),
                           ConstantAggregateZero::get(Memory)}),
      false, "runahead.site");
  Site->setAlignment(Align(64));
  return Site;
}

void RuntimeInterface::removeTables() {
  for (; !Tables.empty(); Tables.pop_back())
    Tables.back()->eraseFromParent();
}

//===----------------------------------------------------------------------===//
// Guards and hooks
//===----------------------------------------------------------------------===//

Emitter::Emitter(Function &F, LoopInfo &LI, DominatorTree &DT, ScalarEvolution &SE,
                 RuntimeInterface &Runtime)
    : F(F), LI(LI), DT(DT), SE(SE), Runtime(Runtime) {}

static std::string whereIs(const Function &F, const Site &S) {
  std::string Where = F.getName().str();
  if (const DebugLoc &Location = S.Start)
    if (auto *Scope = dyn_cast_or_null<DIScope>(Location.getScope()))
      Where += " (" + Scope->getFilename().str() + ":" + std::to_string(Location.getLine()) + ")";
  return Where;
}

bool Emitter::canEmit(const Site &S, const char *&Why) {
  for (Loop *L : S.Levels) {
    if (!L->isLoopSimplifyForm()) {
      Why = "the loop has several entries or several ways back";
      return false;
    }
    if (L->getHeader()->isEHPad() || any_of(L->blocks(), [](BasicBlock *BB) {
          return isa<IndirectBrInst, CallBrInst>(BB->getTerminator());
        })) {
      Why = "the loop has jumps that cannot be split";
      return false;
    }
    SmallVector<BasicBlock *, 4> Exits;
    L->getExitBlocks(Exits);
    if (any_of(Exits, [](BasicBlock *BB) { return BB->isEHPad(); })) {
      Why = "an exception leaves the loop";
      return false;
    }
  }
  if (!S.root()->isSafeToClone()) {
    Why = "the loop holds something that must not be copied";
    return false;
  }
  return true;
}

/// Instructions of a (part of a) nest that is worth a copy. Larger ones cost compile
/// time: copies of all nests made that of the NAS codes 1.3 to 1.8 times as long.
static constexpr unsigned LargestCopy = 60;
/// Iterations: some ten instructions for each entry are less than 1% of them.
static constexpr unsigned LongLoop = 1024;

static unsigned sizeOf(const Loop *L) {
  unsigned Size = 0;
  for (const BasicBlock *BB : L->blocks())
    Size += BB->size();
  return Size;
}

/// The level from which inwards the nest is copied; the number of levels: nowhere.
unsigned Emitter::copyFrom(const Site &S, ArrayRef<Site> All) const {
  unsigned Levels = S.Levels.size();
  Loop *Inner = S.innermost();
  // All tests stand beside whole inner loops, and are nothing there.
  if (!Inner->isInnermost())
    return Levels;
  // A loop by itself is entered once in a while, a long one runs long: strips cost
  // them nothing.
  if (stripMinable(Inner) &&
      (!Inner->getParentLoop() || SE.getSmallConstantTripCount(Inner) >= LongLoop))
    return Levels;
  for (unsigned From = 0; From < Levels; ++From) {
    Loop *L = S.Levels[From];
    bool Outer = any_of(All, [&](const Site &Other) {
      return &Other != &S && L->contains(Other.root());
    });
    if (!Outer && sizeOf(L) <= LargestCopy)
      return From;
  }
  return Levels;
}

void Emitter::emit(ArrayRef<Site> Sites) {
  unsigned Most = 0;
  for (const Site &S : Sites) {
    unsigned Count = S.Levels.size();
    for (const Reference &R : S.References)
      Count += 1 + S.Levels.size() + 2 * (boxesOf(S, R).size() + R.Address.Inside.size()) + 2;
    Most = std::max(Most, Count);
  }
  Values = scratch(ArrayType::get(Type::getInt64Ty(F.getContext()), Most), "runahead.values");
  SmallVector<Guard, 4> Guards;
  for (const Site &S : Sites)
    Guards.push_back(emitGuard(S));
  // Copies first, while SCEV, loops and dominators still describe the code; then
  // the calls, which need none of them.
  SmallVector<Copy, 4> Copies;
  for (unsigned I = 0; I < Sites.size(); ++I)
    Copies.push_back(Sites[I].AtOnce
                         ? Copy()
                         : copyNest(Sites[I], copyFrom(Sites[I], Sites), Guards[I]));
  for (unsigned I = 0; I < Sites.size(); ++I)
    emitCalls(Copies[I], Guards[I]);
}

AllocaInst *Emitter::scratch(Type *T, const Twine &Name) {
  IRBuilder<> B(&F.getEntryBlock(), F.getEntryBlock().getFirstInsertionPt());
  return B.CreateAlloca(T, nullptr, Name);
}

static Value *expand(const SCEV *S, IRBuilder<> &B, Expander &Expander) {
  Type *T = S->getType()->isPointerTy() ? S->getType() : B.getInt64Ty();
  Value *V = Expander.expandCodeFor(S, T, B.GetInsertPoint());
  return V->getType()->isPointerTy() ? B.CreatePtrToInt(V, B.getInt64Ty()) : V;
}

static Value *address(const Linear &Address, IRBuilder<> &B, Expander &Expander) {
  Value *V = expand(Address.Rest, B, Expander);
  return Address.Base ? B.CreateAdd(expand(Address.Base, B, Expander), V) : V;
}

/// A number, or the address of something plus a number: the linker can fill it in.
static Constant *linkTimeConstant(Value *V, const DataLayout &DL) {
  auto *C = dyn_cast<Constant>(V);
  if (!C || isa<ConstantInt>(C))
    return C;
  GlobalValue *Of = nullptr;
  APInt Offset;
  // address() adds to a number that was a pointer, which the test below does not look into.
  auto *Sum = dyn_cast<ConstantExpr>(C);
  if (Sum && Sum->getOpcode() == Instruction::Add && isa<ConstantInt>(Sum->getOperand(1)))
    return linkTimeConstant(Sum->getOperand(0), DL) ? C : nullptr;
  return IsConstantOffsetFromGlobal(C, Of, Offset, DL) && !Of->isThreadLocal() ? C : nullptr;
}

/// What enter is to know; see runahead_abi.h for the order. What only the program
/// knows is stored for it, and null in the list that is returned.
SmallVector<Constant *, 64> Emitter::fillValues(const Site &S, IRBuilder<> &B) {
  Expander Expander(SE, *F.getParent());
  SmallVector<Constant *, 64> Known;
  unsigned Next = 0;
  auto Put = [&](Value *V) {
    Known.push_back(linkTimeConstant(V, F.getDataLayout()));
    if (!Known.back())
      B.CreateStore(V, B.CreateConstInBoundsGEP2_64(Values->getAllocatedType(), Values, 0, Next++));
  };
  BasicBlock *Preheader = S.root()->getLoopPreheader();
  auto Expand = [&](const SCEV *Of) { return expand(Of, B, Expander); };
  auto Trip = [&](const Loop *L) -> Value * {
    const SCEV *Count = tripCountIn(L, S.root(), SE);
    if (!Count || !SE.isAvailableAtLoopEntry(Count, S.root()) ||
        !Expander.isSafeToExpandAt(Count, Preheader->getTerminator()))
      return B.getInt64(RUNAHEAD_UNKNOWN);
    return Expand(Count);
  };
  for (Loop *L : S.Levels)
    Put(Trip(L));
  auto Stride = [&](const Reference &R, const Loop *L) -> Value * {
    const SCEV *S = R.Address.strideIn(L);
    return S ? Expand(S) : B.getInt64(0);
  };
  for (const Reference &R : S.References) {
    Put(address(R.Address, B, Expander));
    for (Loop *L : S.Levels)
      Put(Stride(R, L));
    for (const Loop *L : boxesOf(S, R)) {
      Put(Stride(R, L));
      Put(Trip(L));
    }
    for (auto &[Stride, Count] : R.Address.Inside) {
      Put(Expand(Stride));
      Put(Expand(Count));
    }
    if (const auto &Index = R.Address.Index) {
      Put(Expand(Index->Scale));
      Put(Index->Add ? Expand(Index->Add) : B.getInt64(0));
    }
  }
  return Known;
}

/// What a stream is going to touch first, and how much of it.
struct Emitter::Window {
  const Linear *First;
  const SCEV *Stride, *Count;
};

std::optional<Emitter::Window> Emitter::windowOf(const Site &S) const {
  Instruction *End = S.root()->getLoopPreheader()->getTerminator();
  const SCEV *Count = tripCountIn(S.root(), S.root(), SE);
  if (!Count || !SE.isAvailableAtLoopEntry(Count, S.root()) ||
      !Expander(SE, *F.getParent()).isSafeToExpandAt(Count, End))
    return std::nullopt;
  for (const Reference &R : S.References)
    if (const SCEV *Stride = R.Address.Index ? nullptr : R.Address.strideIn(S.root()))
      return Window{&R.Address, Stride, Count};
  return std::nullopt;
}

/// A stream's first reference still inside the window of the last call? Frozen, since a
/// branch depends on it: the program itself may never compute the address.
Value *Emitter::insideWindow(const Window &W, IRBuilder<> &B, Value *Nest) {
  Expander Expander(SE, *F.getParent());
  Value *First = B.CreateFreeze(address(*W.First, B, Expander));
  Value *Bytes = B.CreateFreeze(
      B.CreateMul(expand(W.Count, B, Expander), expand(W.Stride, B, Expander)));
  auto Field = [&](unsigned Offset) {
    Value *P = B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), Nest, Offset);
    return B.CreateAlignedLoad(B.getInt64Ty(), P, Align(8));
  };
  Value *Start = Field(offsetof(runahead_nest, window_start));
  Value *Size = Field(offsetof(runahead_nest, window_bytes));
  Value *From = B.CreateSub(First, Start);
  Value *To = B.CreateAdd(From, Bytes);
  return B.CreateAnd(B.CreateICmpULT(From, Size), B.CreateICmpULE(To, Size));
}

/// An i64 in the loop's header that counts its iterations from 0.
static PHINode *counterOf(Loop *L) {
  BasicBlock *Header = L->getHeader(), *Latch = L->getLoopLatch();
  Type *I64 = Type::getInt64Ty(Header->getContext());
  PHINode *Own = L->getCanonicalInductionVariable();
  if (Own && Own->getType() == I64)
    return Own;
  IRBuilder<> B(Header, Header->begin());
  PHINode *Phi = B.CreatePHI(I64, 2, "runahead.counter");
  B.SetInsertPoint(Latch->getTerminator());
  Phi->addIncoming(B.getInt64(0), L->getLoopPreheader());
  Phi->addIncoming(B.CreateAdd(Phi, B.getInt64(1), "runahead.count"), Latch);
  return Phi;
}

Guard Emitter::emitGuard(const Site &S) {
  Loop *Root = S.root();
  BasicBlock *Preheader = Root->getLoopPreheader();
  LLVMContext &C = F.getContext();
  Type *Ptr = PointerType::getUnqual(C), *I32 = Type::getInt32Ty(C);
  Constant *Null = ConstantPointerNull::get(cast<PointerType>(Ptr));
  MDNode *Unlikely = MDBuilder(C).createBranchWeights(1, 1000);

  IRBuilder<> B(Preheader->getTerminator());
  B.SetCurrentDebugLocation(S.Start);
  DomTreeUpdater DTU(DT, DomTreeUpdater::UpdateStrategy::Eager);
  auto BranchIf = [&](Value *Condition, BasicBlock::iterator Before) {
    Instruction *Then = SplitBlockAndInsertIfThen(Condition, Before, false, Unlikely, &DTU, &LI);
    B.SetInsertPoint(Then);
    return Then->getParent();
  };
  // The blocks, and only then the values: an expander is alive while no edge changes.
  BasicBlock *Start = Preheader;
  BasicBlock *Call = BranchIf(Runtime.armed(B), Preheader->getTerminator()->getIterator());
  BasicBlock *Join = Root->getLoopPreheader();

  // A stream remembers its nest from one entry to the next.
  AllocaInst *Slot = nullptr;
  Value *Previous = Null;
  BranchInst *Skip = nullptr;
  if (S.Stream) {
    // Volatile, or it becomes a register that is carried through every loop around.
    Slot = scratch(Ptr, "runahead.stream");
    IRBuilder<>(&F.getEntryBlock(), std::next(Slot->getIterator()))
        .CreateStore(Null, Slot, /*isVolatile=*/true);
    Previous = B.CreateLoad(Ptr, Slot, /*isVolatile=*/true);
    // Known to be idle here: nothing to look up, nothing to call.
    BasicBlock *Look = BranchIf(B.CreateIsNotNull(Previous), B.GetInsertPoint());
    Call = Look->getSingleSuccessor();
    if (auto Window = windowOf(S)) {
      // Inside: skip the call. What else merges in the join comes as if it were not armed.
      auto AsFromStart = [&](PHINode &Phi) { return Phi.getIncomingValueForBlock(Start); };
      Skip = addEdge(Look, B.getFalse(), Join, AsFromStart, &DTU);
      B.SetInsertPoint(Skip);
      Skip->setCondition(insideWindow(*Window, B, Previous));
    }
  }
  B.SetInsertPoint(Call->getTerminator());
  SmallVector<Constant *, 64> Known = fillValues(S, B);
  CallInst *Entered =
      Runtime.enter(B, Runtime.siteTable(S, whereIs(F, S), Known), Values, Previous);
  Value *Level = B.CreateAlignedLoad(
      I32, B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), Entered, offsetof(runahead_nest, level)),
      Align(4), "runahead.level");
  if (Slot)
    B.CreateStore(Entered, Slot, /*isVolatile=*/true);

  Guard G;
  B.SetInsertPoint(Join, Join->begin());
  auto Merge = [&](Value *Active, Value *Idle, const Twine &Name) {
    PHINode *Phi = B.CreatePHI(Active->getType(), 3, Name);
    for (BasicBlock *From : predecessors(Join))
      Phi->addIncoming(From == Call ? Active : Idle, From);
    return Phi;
  };
  G.Nest = Merge(Entered, Null, "runahead.nest");
  G.Entered = Entered;
  G.EnteredLevel = Level;
  G.Level = Merge(Level, B.getInt32(RUNAHEAD_MAX_LEVELS), "runahead.level");
  return G;
}

/// Puts `if (counter >= next) next = step(...)` at the head of a loop; the last of
/// the counters is the loop's own.
void Emitter::hookHeader(Loop *L, Value *Start, const Guard &G, ArrayRef<Value *> Counters) {
  BasicBlock *Header = L->getHeader(), *Preheader = L->getLoopPreheader(),
             *Latch = L->getLoopLatch();
  MDNode *Unlikely = MDBuilder(F.getContext()).createBranchWeights(1, 1000);
  IRBuilder<> B(Header, Header->begin());
  PHINode *Next = B.CreatePHI(B.getInt64Ty(), 2, "runahead.next");
  B.SetInsertPoint(Header, Header->getFirstInsertionPt());
  B.SetCurrentDebugLocation(Header->getTerminator()->getDebugLoc());
  Value *Due = B.CreateICmpUGE(Counters.back(), Next, "runahead.due");
  bool OneBlock = Header == Latch;
  // The dominator tree and the loops are not kept up from here on: every pass
  // after this one computes its own.
  Instruction *Then = SplitBlockAndInsertIfThen(Due, B.GetInsertPoint(), false, Unlikely);
  BasicBlock *Join = Then->getParent()->getSingleSuccessor();
  IRBuilder<> Inside(Then);
  Inside.SetCurrentDebugLocation(B.getCurrentDebugLocation());
  Value *Stepped = Runtime.step(Inside, G.Nest, Counters);
  B.SetInsertPoint(Join, Join->begin());
  PHINode *Merged = B.CreatePHI(B.getInt64Ty(), 2, "runahead.next");
  Merged->addIncoming(Next, Header);
  Merged->addIncoming(Stepped, Then->getParent());
  Next->addIncoming(Start, Preheader);
  Next->addIncoming(Merged, OneBlock ? Join : Latch);
}

void Emitter::emitCalls(const Copy &C, const Guard &G) {
  SmallVector<Value *, 4> Counters;
  for (Loop *L : C.Levels)
    Counters.push_back(counterOf(L));
  for (unsigned Level = 0; Level < C.Levels.size(); ++Level) {
    Loop *L = C.Levels[Level];
    if (Level + 1 == C.Levels.size() && C.Last) {
      stripMine(C, G, Counters);
      continue;
    }
    IRBuilder<> B(C.Levels.front()->getLoopPreheader()->getTerminator());
    Value *Start = B.CreateSelect(B.CreateICmpEQ(G.Level, B.getInt32(Level)), B.getInt64(0),
                                  B.getInt64(~0ull), "runahead.first");
    hookHeader(L, Start, G, ArrayRef<Value *>(Counters).take_front(Level + 1));
  }
}

} // namespace runahead
