! Solves -u'' = f on (0, 1) by conjugate gradients, and prints the bits of two sums in each iteration. With exact sums they are the same for
! any number of ranks; with those of MPI_Allreduce (`./cg_exact plain`) they differ. FORTRAN is crates/exact-c/fortran,
! and LIBRARIES the folder with libtributary_exact_c.so.
!
!     mpif90 -O2 -ffp-contract=off FORTRAN/tributary_exact.f90 examples/cg_exact.f90 -o cg_exact -LLIBRARIES -ltributary_exact_c
!     tributary run --hosts 2 -- mpirun -n 4 ./cg_exact
program cg_exact
   use mpi
   use tributary_exact
   implicit none
   integer, parameter :: real64 = kind(1.0d0), int64 = selected_int_kind(18)
   integer, parameter :: points = 301, iterations = 60
   real(real64), allocatable :: u(:), r(:), p(:), q(:)
   real(real64) :: h, residual, before, step
   integer :: rank, ranks, first, last, left, right, iteration, i, ierr
   character(len=8) :: way

   call MPI_Init(ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
   call get_command_argument(1, way)
   first = rank * points / ranks + 1
   last = (rank + 1) * points / ranks
   left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
   right = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
   h = 1.0d0 / (points + 1)

   ! One point more at each end, for the neighbours' values.
   allocate (u(first - 1:last + 1), r(first - 1:last + 1), p(first - 1:last + 1), q(first - 1:last + 1))
   u = 0
   r = 0
   p = 0
   do i = first, last
      r(i) = h * h * (1 + i * h) / (2 - i * h)
   end do
   p = r
   residual = dot(r, r)
   do iteration = 1, iterations
      call exchange(p)
      q(first:last) = 2 * p(first:last) - p(first - 1:last - 1) - p(first + 1:last + 1)
      step = residual / dot(p, q)
      u(first:last) = u(first:last) + step * p(first:last)
      r(first:last) = r(first:last) - step * q(first:last)
      before = residual
      residual = dot(r, r)
      p(first:last) = r(first:last) + residual / before * p(first:last)
      call print_checksum
   end do
   if (rank == 0) print '(i0, a, i0, a)', ranks, ' ranks: ', iterations, ' iterations'
   call MPI_Finalize(ierr)

contains

   ! The dot product over all ranks.
   real(real64) function dot(a, b)
      real(real64), intent(in) :: a(first - 1:), b(first - 1:)
      real(real64) :: own
      if (way == 'plain') then
         own = dot_product(a(first:last), b(first:last))
         call MPI_Allreduce(own, dot, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
      else
         call tributary_exact_dot(a(first:last), b(first:last), MPI_COMM_WORLD, dot, ierr)
      end if
   end function dot

   ! The bits of the residual and of the solution's sum.
   subroutine print_checksum
      real(real64) :: own, total
      if (way == 'plain') then
         own = sum(u(first:last))
         call MPI_Allreduce(own, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
      else
         call tributary_exact_sum(u(first:last), MPI_COMM_WORLD, total, ierr)
      end if
      if (rank == 0) print '(a, i0, 2(1x, z16.16))', 'step ', iteration, transfer(residual, 0_int64), transfer(total, 0_int64)
   end subroutine print_checksum

   ! The neighbours' values at both ends.
   subroutine exchange(a)
      real(real64), intent(inout) :: a(first - 1:)
      call MPI_Sendrecv(a(last), 1, MPI_DOUBLE_PRECISION, right, 0, a(first - 1), 1, MPI_DOUBLE_PRECISION, left, 0, &
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(a(first), 1, MPI_DOUBLE_PRECISION, left, 1, a(last + 1), 1, MPI_DOUBLE_PRECISION, right, 1, &
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
   end subroutine exchange
end program cg_exact
