! Exact sums over a communicator, for Fortran: tributary_exact_sum(values, comm, result, ierr) and
! tributary_exact_dot(left, right, comm, result, ierr), of real32 and real64. An array of shape (k, n) has k sums, and the result k
! values. The book's page on exact sums says what is guaranteed.
!
! Compile this file with the MPI of the program, and link with -ltributary_exact_c.
module tributary_exact
   use, intrinsic :: iso_c_binding, only: c_double, c_float, c_int, c_int64_t, c_size_t
   use mpi
   implicit none
   private
   public :: tributary_exact_sum, tributary_exact_dot

   integer(c_int), parameter :: floats = 3, doubles = 4, float_products = 5, double_products = 6

   interface tributary_exact_sum
      module procedure sum_doubles, sum_floats, sum_columns_of_doubles
   end interface
   interface tributary_exact_dot
      module procedure dot_doubles, dot_floats, dot_columns_of_doubles
   end interface

   interface
      pure integer(c_size_t) function integers_of(format) bind(c, name='tributary_exact_integers')
         import :: c_int, c_size_t
         integer(c_int), value, intent(in) :: format
      end function integers_of

      integer(c_int) function to_integers(format, left, right, rows, sums, integers) &
         bind(c, name='tributary_exact_arrays_to_integers')
         import :: c_int, c_int64_t, c_size_t
         integer(c_int), value, intent(in) :: format
         type(*), intent(in) :: left(*), right(*)
         integer(c_size_t), value, intent(in) :: rows, sums
         integer(c_int64_t), intent(out) :: integers(*)
      end function to_integers

      integer(c_int) function to_values(format, integers, sums, values) bind(c, name='tributary_exact_values_of_integers')
         import :: c_double, c_int, c_int64_t, c_size_t
         integer(c_int), value, intent(in) :: format
         integer(c_int64_t), intent(in) :: integers(*)
         integer(c_size_t), value, intent(in) :: sums
         real(c_double), intent(out) :: values(*)
      end function to_values
   end interface

contains

   subroutine sum_doubles(values, comm, result, ierr)
      real(c_double), intent(in), contiguous :: values(:)
      integer, intent(in) :: comm
      real(c_double), intent(out) :: result
      integer, intent(out) :: ierr
      real(c_double) :: results(1)
      call over_ranks(doubles, values, values, size(values, kind=c_size_t), 1, comm, results, ierr)
      result = results(1)
   end subroutine sum_doubles

   subroutine sum_floats(values, comm, result, ierr)
      real(c_float), intent(in), contiguous :: values(:)
      integer, intent(in) :: comm
      real(c_float), intent(out) :: result
      integer, intent(out) :: ierr
      real(c_double) :: results(1)
      call over_ranks(floats, values, values, size(values, kind=c_size_t), 1, comm, results, ierr)
      result = real(results(1), c_float)
   end subroutine sum_floats

   subroutine sum_columns_of_doubles(values, comm, results, ierr)
      real(c_double), intent(in), contiguous :: values(:, :)
      integer, intent(in) :: comm
      real(c_double), intent(out), contiguous :: results(:)
      integer, intent(out) :: ierr
      call over_ranks(doubles, values, values, size(values, 2, c_size_t), size(values, 1), comm, results, ierr)
   end subroutine sum_columns_of_doubles

   subroutine dot_doubles(left, right, comm, result, ierr)
      real(c_double), intent(in), contiguous :: left(:), right(:)
      integer, intent(in) :: comm
      real(c_double), intent(out) :: result
      integer, intent(out) :: ierr
      real(c_double) :: results(1)
      if (size(left) /= size(right)) error stop 'tributary_exact_dot: arrays of different lengths'
      call over_ranks(double_products, left, right, size(left, kind=c_size_t), 1, comm, results, ierr)
      result = results(1)
   end subroutine dot_doubles

   subroutine dot_floats(left, right, comm, result, ierr)
      real(c_float), intent(in), contiguous :: left(:), right(:)
      integer, intent(in) :: comm
      real(c_float), intent(out) :: result
      integer, intent(out) :: ierr
      real(c_double) :: results(1)
      if (size(left) /= size(right)) error stop 'tributary_exact_dot: arrays of different lengths'
      call over_ranks(float_products, left, right, size(left, kind=c_size_t), 1, comm, results, ierr)
      result = real(results(1), c_float)
   end subroutine dot_floats

   subroutine dot_columns_of_doubles(left, right, comm, results, ierr)
      real(c_double), intent(in), contiguous :: left(:, :), right(:, :)
      integer, intent(in) :: comm
      real(c_double), intent(out), contiguous :: results(:)
      integer, intent(out) :: ierr
      if (any(shape(left) /= shape(right))) error stop 'tributary_exact_dot: arrays of different shapes'
      call over_ranks(double_products, left, right, size(left, 2, c_size_t), size(left, 1), comm, results, ierr)
   end subroutine dot_columns_of_doubles

   ! Sums of the arrays of all ranks, which meet in one allreduce of integers.
   subroutine over_ranks(format, left, right, rows, sums, comm, results, ierr)
      integer(c_int), intent(in) :: format
      type(*), intent(in) :: left(*), right(*)
      integer(c_size_t), intent(in) :: rows
      integer, intent(in) :: sums, comm
      real(c_double), intent(out), contiguous :: results(:)
      integer, intent(out) :: ierr
      integer(c_int64_t), allocatable :: own(:), total(:)
      if (size(results) < sums) error stop 'tributary_exact: fewer results than sums'
      allocate (own(sums * integers_of(format)), total(sums * integers_of(format)))
      results = 0
      ierr = MPI_ERR_OTHER
      if (to_integers(format, left, right, rows, int(sums, c_size_t), own) /= 0) return
      call MPI_Allreduce(own, total, size(own), MPI_INTEGER8, MPI_SUM, comm, ierr)
      if (ierr /= MPI_SUCCESS) return
      if (to_values(format, total, int(sums, c_size_t), results) /= 0) ierr = MPI_ERR_OTHER
   end subroutine over_ranks
end module tributary_exact
