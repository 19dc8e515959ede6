//===- SavedBody.cpp - a function as it was -------------------------------===//
#include "Runahead/SavedBody.h"
#include "Runahead/Compat.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

using namespace llvm;

namespace runahead {

bool SavedBody::canSave(const Function &F) {
  return none_of(F, [](const BasicBlock &BB) { return BB.hasAddressTaken(); });
}

/// Arguments, constants and metadata are shared, so that the debug information need not be
/// walked through: only blocks and instructions are copied.
SavedBody::SavedBody(Function &F)
    : F(F), Holder(Function::Create(F.getFunctionType(), GlobalValue::InternalLinkage,
                                    F.getAddressSpace())) {
  useSameDebugFormat(*Holder, F);
  ValueToValueMapTy Map;
  for (const BasicBlock &BB : F)
    Map[&BB] = CloneBasicBlock(&BB, Map, "", Holder);
  const RemapFlags Flags = RF_NoModuleLevelChanges | RF_IgnoreMissingLocals;
  for (Instruction &I : instructions(*Holder)) {
    RemapDbgRecordRange(F.getParent(), I.getDbgRecordRange(), Map, Flags);
    RemapInstruction(&I, Map, Flags);
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
  delete Holder;
}

void SavedBody::putBack() {
  clear(F);
  F.splice(F.end(), Holder);
}

} // namespace runahead
