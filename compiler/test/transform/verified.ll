; What does not verify is taken back, with a remark and nothing else: the function is what it
; was, and so is what the module holds but for declarations that nobody uses.
; RUN: %opt -passes='function(loop-simplify),globaldce' -S %s -o %t.before
; RUN: %opt -passes='function(loop-simplify,runahead<break>),globaldce' -S %s -pass-remarks-missed=runahead -pass-remarks=runahead -o %t.after 2> %t.said
; RUN: FileCheck --check-prefix=SAID %s < %t.said
; RUN: diff %t.before %t.after
; RUN: %opt -passes='runahead<break>,verify' %s -o /dev/null
; Without the break it is changed, and a function that calls itself is no exception: the copy
; that is kept of it calls it as well.
; RUN: %opt -passes='runahead,verify' -S %s -pass-remarks-missed=runahead 2>&1 | FileCheck %s
; SAID-COUNT-2: remark: {{.*}} no prefetch in this function: what was made of it did not verify
; SAID-NOT: remark
; CHECK-NOT: did not verify
; CHECK: call ptr @runahead_ooc_enter
; CHECK: call void @runahead_ooc_copy

define double @sum(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %inc, %loop ]
  %s = phi double [ 0.0, %entry ], [ %add, %loop ]
  %p = getelementptr double, ptr %a, i64 %i
  %v = load double, ptr %p
  %add = fadd double %s, %v
  %inc = add i64 %i, 1
  %done = icmp eq i64 %inc, %n
  br i1 %done, label %deeper, label %loop
deeper:
  %half = lshr i64 %n, 1
  %more = icmp ugt i64 %half, 1
  br i1 %more, label %again, label %exit
again:
  %r = call double @sum(ptr %a, i64 %half)
  br label %exit
exit:
  %total = phi double [ %add, %deeper ], [ %r, %again ]
  ret double %total
}

define ptr @copies(ptr %to, ptr %from, i64 %n, i1 %which) {
entry:
  br i1 %which, label %one, label %other
one:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  br label %other
other:
  %r = phi ptr [ %to, %entry ], [ %from, %one ]
  ret ptr %r
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
