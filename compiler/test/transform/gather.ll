; a[b[i]]: one site with two references, the second indirect; the loop, which stands by
; itself, in strips, and no call in the inner loop. Strides are known when the program is
; linked and lie in a table; the trip count and two addresses do not.
; RUN: %opt -passes=runahead -S %s | FileCheck %s
; CHECK: @runahead.references = private unnamed_addr constant [2 x { i8, i8, i8, i8, i32, i32, i32 }]
; the index: flags INDEX; the gathered: INDIRECT | SIGNED, 4 bytes wide, held by reference 0
; CHECK-SAME: { i8 4, i8 0, i8 0, i8 0, i32 0, i32 0, i32 4 }
; CHECK-SAME: { i8 24, i8 0, i8 4, i8 0, i32 0, i32 0, i32 8 }
; given, given, small, given; zero, small, zero
; CHECK: @runahead.form = private unnamed_addr constant [2 x i8] c"\107"
; CHECK: @runahead.small = private unnamed_addr constant [2 x i16] [i16 4, i16 8]
; CHECK-NOT: @runahead.known
; CHECK: @runahead.site = private global { {{.*}} } { i32 3, i8 1, i8 2, i16 0,
; CHECK-LABEL: define double @gather
; CHECK: load atomic i8, ptr @runahead_ooc_3_is_missing__link_with_lrunahead_ooc monotonic
; CHECK: call ptr @runahead_ooc_enter
; CHECK: runahead.strip:
; CHECK: call i64 @runahead_ooc_step
; CHECK: for.body:
; CHECK-NOT: call {{.*}}@runahead
; CHECK: runahead.strip.end:
define double @gather(ptr %a, ptr %b, i64 %n) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %ph, label %exit
ph:
  br label %for.body
for.body:
  %i = phi i64 [ 0, %ph ], [ %inc, %for.body ]
  %sum = phi double [ 0.0, %ph ], [ %add, %for.body ]
  %pb = getelementptr inbounds i32, ptr %b, i64 %i
  %idx = load i32, ptr %pb, align 4
  %wide = sext i32 %idx to i64
  %pa = getelementptr inbounds double, ptr %a, i64 %wide
  %v = load double, ptr %pa, align 8
  %add = fadd double %sum, %v
  %inc = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %inc, %n
  br i1 %done, label %exit, label %for.body
exit:
  %r = phi double [ 0.0, %entry ], [ %add, %for.body ]
  ret double %r
}
