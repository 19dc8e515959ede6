! ALLOCATE out of core, without a change of source.
! REQUIRES: flang, memory-cgroup
! RUN: %fc -O2 --runahead-off %s -o %t.plain
! RUN: %fc -O2 --runahead-heap %s -o %t.ours
! RUN: %t.plain > %t.expected
! RUN: not %limited 32 %t.plain
! RUN: env RUNAHEAD_OOC_STATS=1 %limited 32 %t.ours > %t.out 2> %t.err
! RUN: diff %t.expected %t.out
! RUN: FileCheck %s < %t.err
! CHECK-DAG: nests entered {{[1-9]}}
! CHECK-DAG: prefetched {{[1-9][0-9]*}} in
! CHECK-DAG: heap: out of core {{[1-9]}}
program fields
  implicit none
  integer, parameter :: n = 200
  real(8), allocatable :: u(:, :, :), v(:, :, :)
  integer :: i, j, k
  allocate(u(n, n, n), v(n, n, n))
  do k = 1, n
    do j = 1, n
      do i = 1, n
        u(i, j, k) = i + j * 2 + k * 3
        v(i, j, k) = 0
      end do
    end do
  end do
  do k = 2, n - 1
    do j = 2, n - 1
      do i = 2, n - 1
        v(i, j, k) = u(i - 1, j, k) + u(i + 1, j, k) + u(i, j - 1, k) + u(i, j, k + 1)
      end do
    end do
  end do
  print *, int(sum(v), 8)
  deallocate(u)
  allocate(u(n, n, n))
  do i = 1, n
    u(1, i, :) = v(i, 5, :)
  end do
  print *, int(sum(u(1, :, :)), 8)
end program
