! Solves -u'' = 1 on (0, 1) with u(0) = u(1) = 0 by conjugate gradients. Each rank has a piece of the points. An iteration
! exchanges one point with each neighbour and sums two numbers over all ranks: those sums are what Tributary speeds up.
!
!     mpif90 -O2 examples/cg_mpi.f90 -o cg
!     tributary run --hosts 2 -- mpirun -n 4 ./cg
program cg_mpi
   use mpi
   implicit none
   integer, parameter :: real64 = kind(1.0d0)
   integer, parameter :: points = 400
   real(real64), parameter :: tolerance = 1.0d-12
   real(real64), allocatable :: u(:), r(:), p(:), q(:)
   real(real64) :: h, residual, before, step, largest, exact, error
   integer :: rank, ranks, first, last, left, right, iteration, i, ierr

   call MPI_Init(ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
   first = rank * points / ranks + 1
   last = (rank + 1) * points / ranks
   left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
   right = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
   h = 1.0d0 / (points + 1)

   ! One point more at each end, for the neighbours' values.
   allocate (u(first - 1:last + 1), r(first - 1:last + 1), p(first - 1:last + 1), q(first - 1:last + 1))
   u = 0.0d0
   r = 0.0d0
   p = 0.0d0
   r(first:last) = h * h
   p = r
   residual = dot(r, r)
   do iteration = 1, 2 * points
      if (sqrt(residual) < tolerance) exit
      call exchange(p)
      q(first:last) = 2 * p(first:last) - p(first - 1:last - 1) - p(first + 1:last + 1)
      step = residual / dot(p, q)
      u(first:last) = u(first:last) + step * p(first:last)
      r(first:last) = r(first:last) - step * q(first:last)
      before = residual
      residual = dot(r, r)
      p(first:last) = r(first:last) + residual / before * p(first:last)
   end do

   error = 0.0d0
   do i = first, last
      exact = 0.5d0 * (i * h) * (1.0d0 - i * h)
      error = max(error, abs(u(i) - exact))
   end do
   call MPI_Allreduce(error, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
   if (largest > 1.0d-9) then
      print '(a, es9.2)', 'the solution is wrong by ', largest
      call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
   end if
   if (rank == 0) print '(i0, a, i0, a, es8.1)', ranks, ' ranks: ', iteration - 1, ' iterations, largest error ', largest
   call MPI_Finalize(ierr)

contains

   ! The dot product over all ranks.
   real(real64) function dot(a, b)
      real(real64), intent(in) :: a(first - 1:), b(first - 1:)
      real(real64) :: own
      own = dot_product(a(first:last), b(first:last))
      call MPI_Allreduce(own, dot, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
   end function dot

   ! The neighbours' values at both ends.
   subroutine exchange(a)
      real(real64), intent(inout) :: a(first - 1:)
      call MPI_Sendrecv(a(last), 1, MPI_DOUBLE_PRECISION, right, 0, a(first - 1), 1, MPI_DOUBLE_PRECISION, left, 0, &
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(a(first), 1, MPI_DOUBLE_PRECISION, left, 1, a(last + 1), 1, MPI_DOUBLE_PRECISION, right, 1, &
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
   end subroutine exchange
end program cg_mpi
