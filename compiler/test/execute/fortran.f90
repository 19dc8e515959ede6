! REQUIRES: flang
! RUN: %fc -O2 --runahead-static -Rpass=runahead %s -o %t 2> %t.remarks
! RUN: FileCheck --check-prefix=REMARK %s < %t.remarks
! RUN: env RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_MEMORY=4000000 %t > %t.out 2> %t.err
! RUN: FileCheck %s < %t.out
! RUN: FileCheck --check-prefix=STATS %s < %t.err
! CHECK: 6750000
! STATS: nests entered {{[1-9]}}
program sums
  implicit none
  integer, parameter :: n = 150
  real(8) :: u(n, n, n), v(n, n, n)
  common /fields/ u, v
  integer :: i, j, k
  ! REMARK-DAG: fortran.f90:[[#@LINE + 1]]:{{.*}} prefetch inserted for 2 groups {{.*}} over 2 loop levels
  do k = 1, n
    do j = 1, n
      do i = 1, n
        u(i, j, k) = 2.0d0
        v(i, j, k) = 0.0d0
      end do
    end do
  end do
  do j = 1, n
    ! REMARK-DAG: fortran.f90:[[#@LINE + 1]]:{{.*}} prefetch inserted for 2 groups {{.*}} over 2 loop levels
    do k = 1, n
      do i = 1, n
        v(i, j, k) = u(i, j, k) + v(i, j, k)
      end do
    end do
  end do
  print *, int(sum(v))
end program
