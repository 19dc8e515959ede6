//===- SavedBody.h - a function as it was -----------------------*- C++ -*-===//
//
// What the pass makes of a function is verified before anyone else sees it. Where that
// fails the function gets back the body that it had, so that a fault of the pass costs a
// program its prefetches and nothing else.
//
//===----------------------------------------------------------------------===//
#ifndef RUNAHEAD_SAVEDBODY_H
#define RUNAHEAD_SAVEDBODY_H

#include "llvm/IR/Function.h"
#include <memory>

namespace runahead {

class SavedBody {
public:
  /// Blocks whose address is taken cannot be copied: constants elsewhere refer to them.
  static bool canSave(const llvm::Function &F);
  explicit SavedBody(llvm::Function &F);
  SavedBody(const SavedBody &) = delete;
  ~SavedBody();
  /// Once. Whatever was known of the function's blocks and values is out of date.
  void putBack();

private:
  llvm::Function &F;
  llvm::Function *Holder; ///< as long as this lives; its blocks use the arguments of F
};

} // namespace runahead
#endif
