//===- SavedBody.cpp - a function as it was -------------------------------===//
#include "Runahead/SavedBody.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

using namespace llvm;

namespace runahead {

bool SavedBody::canSave(const Function &F) {
  return none_of(F, [](const BasicBlock &BB) { return BB.hasAddressTaken(); });
}

/// Arguments, constants and metadata are shared, so that the debug information need not be
/// walked through: only blocks and instructions are copied. What links a variable to its
/// stores must not be shared by two functions, nor a function be called from no module: the
/// verifier, looking at one, sees the other.
SavedBody::SavedBody(Function &F)
    : F(F), Holder(Function::Create(F.getFunctionType(), GlobalValue::InternalLinkage,
                                    F.getAddressSpace(), "", F.getParent())) {
  ValueToValueMapTy Map;
  for (const BasicBlock &BB : F)
    Map[&BB] = CloneBasicBlock(&BB, Map, "", Holder);
  const RemapFlags Flags = RF_NoModuleLevelChanges | RF_IgnoreMissingLocals;
  DenseMap<DIAssignID *, DIAssignID *> Links;
  for (Instruction &I : instructions(*Holder)) {
    RemapDbgRecordRange(F.getParent(), I.getDbgRecordRange(), Map, Flags);
    RemapInstruction(&I, Map, Flags);
    at::remapAssignID(Links, I);
  }
}

static void clear(Function &F) {
  for (BasicBlock &BB : F)
    BB.dropAllReferences();
  while (!F.empty())
    F.begin()->eraseFromParent();
}

SavedBody::~SavedBody() {
  clear(*Holder);
  Holder->eraseFromParent();
}

void SavedBody::putBack() {
  clear(F);
  F.splice(F.end(), Holder);
}

} // namespace runahead
