; The value that a loop starts with comes out of the loop before it, by a PHI where there was
; none: the join of the guard merges it as well as what is the guard's own.
; RUN: %opt -passes='runahead,verify' -S %s | FileCheck %s
; CHECK-LABEL: define i32 @behind_a_search
; CHECK: call ptr @runahead_ooc_enter
; CHECK: ret i32
define i32 @behind_a_search(ptr %from, ptr %limit, i1 %leave, i1 %found) {
entry:
  br label %outer

outer:
  br label %search

search:
  %p = phi ptr [ %from, %outer ], [ %p.next, %search.latch ]
  %p.next = getelementptr inbounds i8, ptr %p, i64 0
  br i1 %leave, label %out, label %search.latch

search.latch:
  br i1 %found, label %between, label %search

between:
  br label %back

back:
  %q = phi ptr [ %p, %between ], [ %q.next, %back.latch ]
  %any = icmp ugt ptr %q, null
  %within = icmp ugt ptr null, %limit
  %on = and i1 %within, %any
  br i1 %on, label %back.latch, label %behind

back.latch:
  %q.next = getelementptr inbounds i8, ptr %q, i64 -1
  %v = load i8, ptr %q.next
  %same = icmp eq i8 %v, 0
  br i1 %same, label %back, label %behind

behind:
  br label %wait

wait:
  br i1 %leave, label %wait, label %again

again:
  br label %outer

out:
  ret i32 0
}
