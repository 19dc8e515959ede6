; Two nests with the same bound on two ways: what is computed before one is not there before the
; other. An expander's table that outlives its keys gives one the other's value where a new
; branch lies at the address of an old one; so the compiler runs in forty layouts of memory
; (Inputs/layout.c), with an allocator that gives out at once what is free. What comes out is
; valid, and the same in all of them.
; RUN: %plaincc -O1 -shared -fPIC %S/Inputs/layout.c -o %t.so
; RUN: %plaincc -O2 -w -fno-vectorize -fno-unroll-loops -S -emit-llvm %S/kernels.c -o %t.kernels.ll
; RUN: for layout in $(seq 40); do \
; RUN:   for input in %s %t.kernels.ll; do \
; RUN:     LAYOUT=$layout LD_PRELOAD=%t.so %opt -passes='runahead,verify' -S $input -o - | cksum || exit 1; \
; RUN:   done; \
; RUN: done | sort | uniq -c | FileCheck %s
; RUN: LAYOUT=1 LD_PRELOAD=%t.so %opt -passes='runahead,verify' -S %s | FileCheck --check-prefix=CODE %s
; CHECK: {{^ *40 [0-9]+ [0-9]+$}}
; CHECK-NEXT: {{^ *40 [0-9]+ [0-9]+$}}
; CHECK-NOT: {{[0-9]}}
; CODE-COUNT-2: call ptr @runahead_ooc_enter

define void @either(ptr %a, ptr %n.at, i1 %which) {
entry:
  %n = load i32, ptr %n.at
  br i1 %which, label %one, label %other

one:
  %one.less = add i32 %n, -1
  %one.last = zext i32 %one.less to i64
  br label %one.outer
one.outer:
  br label %one.inner
one.inner:
  %i = phi i64 [ 0, %one.outer ], [ %i.next, %one.inner ]
  %p = getelementptr double, ptr %a, i64 %i
  %v = load double, ptr %p
  %i.next = add i64 %i, 1
  %i.done = icmp eq i64 %i, %one.last
  br i1 %i.done, label %one.outer, label %one.inner

other:
  %other.less = add i32 %n, -1
  %other.last = zext i32 %other.less to i64
  br label %other.outer
other.outer:
  br label %other.inner
other.inner:
  %j = phi i64 [ 0, %other.outer ], [ %j.next, %other.inner ]
  %q = getelementptr double, ptr %a, i64 %j
  %w = load double, ptr %q
  %j.next = add i64 %j, 1
  %j.done = icmp eq i64 %j, %other.last
  br i1 %j.done, label %other.outer, label %other.inner
}
