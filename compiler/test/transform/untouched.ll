; Loops that the pass does not understand come out as they went in.
; RUN: %opt -passes=loop-simplify -S %s -o %t.before
; RUN: %opt -passes=loop-simplify,runahead -S %s -o %t.after
; RUN: diff %t.before %t.after
; The same of a loop that it does understand must fail, or this test says nothing.
; RUN: %opt -passes=loop-simplify -S %S/gather.ll -o %t.known.before
; RUN: %opt -passes=loop-simplify,runahead -S %S/gather.ll -o %t.known.after
; RUN: not diff -q %t.known.before %t.known.after

; A linked list.
define i64 @list(ptr %head) {
entry:
  br label %loop
loop:
  %p = phi ptr [ %head, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %add, %loop ]
  %v = load i64, ptr %p
  %add = add i64 %sum, %v
  %link = getelementptr i64, ptr %p, i64 1
  %next = load ptr, ptr %link
  %end = icmp eq ptr %next, null
  br i1 %end, label %exit, label %loop
exit:
  ret i64 %add
}

; Volatile memory is not ours to guess about.
define void @volatile(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %inc, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  store volatile i64 %i, ptr %p
  %inc = add i64 %i, 1
  %done = icmp eq i64 %inc, %n
  br i1 %done, label %exit, label %loop
exit:
  ret void
}

; Known to touch 8 KB.
define i64 @small(ptr %a) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %inc, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %add, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  %v = load i64, ptr %p
  %add = add i64 %sum, %v
  %inc = add i64 %i, 1
  %done = icmp eq i64 %inc, 1024
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %add
}

; Not to be optimised.
define i64 @optnone(ptr %a, i64 %n) noinline optnone {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %inc, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %add, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  %v = load i64, ptr %p
  %add = add i64 %sum, %v
  %inc = add i64 %i, 1
  %done = icmp eq i64 %inc, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %add
}
