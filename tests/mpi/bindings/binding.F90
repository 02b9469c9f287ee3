! Makes the calls of binding.c from Fortran, by mpif.h (-DMPIF_H), `use mpi` (-DUSE_MPI) or `use mpi_f08`
! (-DUSE_MPI_F08), and checks every result. Prints the number of collectives called, and a number that
! depends on every result.
!
! Every vector holds small whole numbers, so that every order of reduction gives the same result.

#if defined(USE_MPI_F08)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define TYPE_HANDLE type(MPI_Datatype)
#define OP_HANDLE type(MPI_Op)
#else
#define COMM integer
#define REQUEST integer
#define TYPE_HANDLE integer
#define OP_HANDLE integer
#endif

module checks
#if defined(USE_MPI_F08)
  use mpi_f08
#elif defined(USE_MPI)
  use mpi
#endif
  implicit none
#if defined(MPIF_H)
  include 'mpif.h'
#endif
  integer, parameter :: long = selected_int_kind(18)
  integer, parameter :: double = kind(1.0d0)
  integer :: rank, ranks, ierr
  integer(long) :: calls = 0, checks_made = 0, checks_failed = 0, results = 0
  character(len=40) :: what = ''
contains

  ! Counts one collective on the world, at one rank.
  subroutine called(name)
    character(len=*), intent(in) :: name
    what = name
    if (rank == 0) calls = calls + 1
  end subroutine

  ! Compares a result; `value` enters the number that is printed.
  subroutine check(value, expected, at)
    real(double), intent(in) :: value, expected
    integer, intent(in) :: at
    checks_made = checks_made + 1
    results = mod(results * 31 + int(value, long) + at, 1000000007_long)
    if (value /= expected) then
      checks_failed = checks_failed + 1
      if (checks_failed <= 5) then
        write (*, '(a,i0,a,a,a,i0,a,g0,a,g0)') 'rank ', rank, ': ', trim(what), ', element ', at, &
          ': ', value, ' instead of ', expected
      end if
    end if
  end subroutine

  ! The contribution of a rank to an element: 1 to 5.
  integer function part(of, at)
    integer, intent(in) :: of, at
    part = 1 + mod(of + 3 * at, 5)
  end function

  ! The sum of the contributions of the first `members` ranks.
  integer function total(members, at)
    integer, intent(in) :: members, at
    integer :: of
    total = 0
    do of = 0, members - 1
      total = total + part(of, at)
    end do
  end function

  integer function largest(at)
    integer, intent(in) :: at
    integer :: of
    largest = 0
    do of = 0, ranks - 1
      largest = max(largest, part(of, at))
    end do
  end function

  ! The operator of the test: a sum, by a function of this program.
#if defined(USE_MPI_F08)
  subroutine add(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    real(double), pointer :: a(:), b(:)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = a + b
    if (datatype /= MPI_DOUBLE_PRECISION) checks_failed = checks_failed + 1
  end subroutine
#else
  subroutine add(invec, inoutvec, len, datatype)
    integer :: len, datatype
    real(double) :: invec(len), inoutvec(len)
    inoutvec = invec + inoutvec
    if (datatype /= MPI_DOUBLE_PRECISION) checks_failed = checks_failed + 1
  end subroutine
#endif
end module

program binding
  use checks
  implicit none
  integer, parameter :: lengths(4) = [1, 3, 1000, 40000]
  integer :: round, thread_level
  integer(long) :: all_calls, all_failed

  call MPI_Init_thread(MPI_THREAD_SINGLE, thread_level, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  do round = 1, size(lengths)
    call reductions(lengths(round))
    call other_types(lengths(round))
    call moves(lengths(round))
    call nonblocking(lengths(round))
    call on_one_host(lengths(round))
    call own_operator(lengths(round))
    call communicators(lengths(round))
  end do
  call finish()
contains

  subroutine reductions(n)
    integer, intent(in) :: n
    integer :: mine(n), all(n), at, root
    real(double) :: numbers(n), sums(n)
    root = ranks - 1
    mine = [(part(rank, at), at = 1, n)]
    call called('MPI_Allreduce of integers')
    call MPI_Allreduce(mine, all, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(all(at), double), real(total(ranks, at), double), at)
    end do
    numbers = mine
    call called('MPI_Allreduce of reals, the largest')
    call MPI_Allreduce(numbers, sums, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(sums(at), real(largest(at), double), at)
    end do
    call called('MPI_Allreduce in place')
    call MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(numbers(at), real(total(ranks, at), double), at)
    end do
    numbers = mine
    call called('MPI_Reduce')
    call MPI_Reduce(numbers, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, ierr)
    if (rank == root) then
      do at = 1, n
        call check(sums(at), real(total(ranks, at), double), at)
      end do
    end if
    call called('MPI_Reduce in place')
    if (rank == root) then
      call MPI_Reduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, ierr)
      do at = 1, n
        call check(numbers(at), real(total(ranks, at), double), at)
      end do
    else
      call MPI_Reduce(numbers, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, ierr)
    end if
  end subroutine

  subroutine other_types(n)
    integer, intent(in) :: n
    complex(double) :: mine(n), all(n)
    logical :: flags(n), together(n)
#if !defined(EIGHT_BYTES)
    integer :: pairs(2, n), best(2, n), of
#endif
    integer :: at
    integer(8) :: wide(n), wides(n)
    real(8) :: reals(n), sums(n)
    mine = [(cmplx(part(rank, at), -part(rank, at + 1), double), at = 1, n)]
    call called('MPI_Allreduce of complex numbers')
    call MPI_Allreduce(mine, all, n, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(all(at), double), real(total(ranks, at), double), at)
      call check(aimag(all(at)), -real(total(ranks, at + 1), double), at)
    end do
    flags = [(part(rank, at) /= 5, at = 1, n)]
    call called('MPI_Allreduce of logicals')
    call MPI_Allreduce(flags, together, n, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(merge(1.0d0, 0.0d0, together(at)), merge(1.0d0, 0.0d0, largest(at) /= 5), at)
    end do
#if !defined(EIGHT_BYTES) /* there MPI_2INTEGER is a pair of four-byte integers */
    do at = 1, n
      pairs(:, at) = [part(rank, at), rank]
    end do
    call called('MPI_Allreduce of pairs')
    call MPI_Allreduce(pairs, best, n, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
    do at = 1, n
      of = 0
      do while (part(of, at) /= largest(at))
        of = of + 1
      end do
      call check(real(best(1, at), double), real(largest(at), double), at)
      call check(real(best(2, at), double), real(of, double), at)
    end do
#endif
    wide = [(int(part(rank, at), 8) * 2_8**33, at = 1, n)]
    call called('MPI_Allreduce of INTEGER8')
    call MPI_Allreduce(wide, wides, n, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(wides(at) / 2_8**33, double), real(total(ranks, at), double), at)
    end do
    reals = [(real(part(rank, at), 8), at = 1, n)]
    call called('MPI_Allreduce of REAL8')
    call MPI_Allreduce(reals, sums, n, MPI_REAL8, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(sums(at), double), real(total(ranks, at), double), at)
    end do
  end subroutine

  subroutine moves(n)
    integer, intent(in) :: n
    integer :: at, blocks(1)
    real(double), asynchronous :: vector(n)
    integer(kind=MPI_ADDRESS_KIND) :: address(1)
    TYPE_HANDLE :: absolute
    vector = merge([(part(1, at), at = 1, n)], 0, rank == 0)
    call called('MPI_Bcast')
    call MPI_Bcast(vector, n, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(vector(at), real(part(1, at), double), at)
    end do
#if !defined(EIGHT_BYTES) /* there Intel's MPI_Get_address and MPI_BOTTOM do not agree */
    vector = merge([(part(2, at), at = 1, n)], 0, rank == ranks - 1)
    call MPI_Get_address(vector, address(1), ierr)
    blocks = n
    call MPI_Type_create_hindexed(1, blocks, address, MPI_DOUBLE_PRECISION, absolute, ierr)
    call MPI_Type_commit(absolute, ierr)
    call called('MPI_Bcast from MPI_BOTTOM')
    call MPI_Bcast(MPI_BOTTOM, 1, absolute, ranks - 1, MPI_COMM_WORLD, ierr)
    call MPI_Type_free(absolute, ierr)
    ! Another address of the vector, so that the compiler cannot keep what it knew of it.
    call MPI_Get_address(vector, address(1), ierr)
    do at = 1, n
      call check(vector(at), real(part(2, at), double), at)
    end do
#endif
    call called('MPI_Barrier')
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine

  subroutine nonblocking(n)
    integer, intent(in) :: n
    integer, asynchronous :: mine(n), all(n), sums(n), sent(n)
    integer :: at
    logical :: done
    REQUEST :: one, several(3)
    mine = [(part(rank, at), at = 1, n)]
    call called('MPI_Iallreduce')
    call MPI_Iallreduce(mine, all, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, one, ierr)
    call MPI_Wait(one, MPI_STATUS_IGNORE, ierr)
    do at = 1, n
      call check(real(all(at), double), real(total(ranks, at), double), at)
    end do
    sent = merge([(part(3, at), at = 1, n)], 0, rank == 0)
    all = 0
    call called('MPI_Ibcast')
    call MPI_Ibcast(sent, n, MPI_INTEGER, 0, MPI_COMM_WORLD, several(1), ierr)
    call called('MPI_Ireduce')
    call MPI_Ireduce(mine, sums, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, several(2), ierr)
    call called('MPI_Iallreduce in place')
    all = mine
    call MPI_Iallreduce(MPI_IN_PLACE, all, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, several(3), ierr)
    call MPI_Waitall(3, several, MPI_STATUSES_IGNORE, ierr)
    do at = 1, n
      call check(real(sent(at), double), real(part(3, at), double), at)
      if (rank == 0) call check(real(sums(at), double), real(total(ranks, at), double), at)
      call check(real(all(at), double), real(total(ranks, at), double), at)
    end do
    call called('MPI_Ibarrier')
    call MPI_Ibarrier(MPI_COMM_WORLD, one, ierr)
    done = .false.
    do while (.not. done)
      call MPI_Test(one, done, MPI_STATUS_IGNORE, ierr)
    end do
  end subroutine

  subroutine on_one_host(n)
    integer, intent(in) :: n
    integer :: mine(n * ranks), block(n), all(n * ranks), at, of
    mine = [(part(rank, at), at = 1, n * ranks)]
    call called('MPI_Reduce_scatter_block')
    call MPI_Reduce_scatter_block(mine, block, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(block(at), double), real(total(ranks, rank * n + at), double), at)
    end do
    call called('MPI_Allgather')
    call MPI_Allgather(mine, n, MPI_INTEGER, all, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    do of = 0, ranks - 1
      do at = 1, n
        call check(real(all(of * n + at), double), real(part(of, at), double), at)
      end do
    end do
    call called('MPI_Scan')
    call MPI_Scan(mine, block, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    do at = 1, n
      call check(real(block(at), double), real(total(rank + 1, at), double), at)
    end do
    call called('MPI_Exscan')
    call MPI_Exscan(mine, block, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (rank > 0) then
      do at = 1, n
        call check(real(block(at), double), real(total(rank, at), double), at)
      end do
    end if
  end subroutine

  subroutine own_operator(n)
    integer, intent(in) :: n
    real(double) :: mine(n), all(n)
    integer :: at
    OP_HANDLE :: operator_
    mine = [(real(part(rank, at), double), at = 1, n)]
    call MPI_Op_create(add, .true., operator_, ierr)
    call called('MPI_Allreduce by an operator of the program')
    call MPI_Allreduce(mine, all, n, MPI_DOUBLE_PRECISION, operator_, MPI_COMM_WORLD, ierr)
    call MPI_Op_free(operator_, ierr)
    do at = 1, n
      call check(all(at), real(total(ranks, at), double), at)
    end do
  end subroutine

  subroutine communicators(n)
    integer, intent(in) :: n
    integer :: mine(n), all(n), at, of, expected, half_rank
    COMM :: half, copy
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, ierr)
    call MPI_Comm_rank(half, half_rank, ierr)
    mine = [(part(rank, at), at = 1, n)]
    what = 'MPI_Allreduce on a part of the world'
    if (half_rank == 0) calls = calls + 1
    call MPI_Allreduce(mine, all, n, MPI_INTEGER, MPI_SUM, half, ierr)
    do at = 1, n
      expected = 0
      do of = mod(rank, 2), ranks - 1, 2
        expected = expected + part(of, at)
      end do
      call check(real(all(at), double), real(expected, double), at)
    end do
    call MPI_Comm_free(half, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call called('MPI_Barrier on a copy of the world')
    call MPI_Barrier(copy, ierr)
    call MPI_Comm_free(copy, ierr)
  end subroutine

  subroutine finish()
    integer(long) :: mine(2), all(2), parts, sum_of_results
    ! The last three calls count themselves.
    call called('MPI_Allreduce')
    call called('MPI_Allreduce')
    call called('MPI_Allreduce')
    mine = [calls, checks_failed]
    call MPI_Allreduce(mine, all, 2, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierr)
    all_calls = all(1)
    all_failed = all(2)
    call MPI_Allreduce(checks_made, parts, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierr)
    call MPI_Allreduce(results, sum_of_results, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (rank == 0) then
      write (*, '(a,i0)') 'calls ', all_calls
      write (*, '(a,i0)') 'results ', sum_of_results
      write (*, '(a,i0,a,i0,a)') 'checks ', parts, ', ', all_failed, ' failed'
    end if
    call MPI_Finalize(ierr)
    if (all_failed /= 0) stop 1
  end subroutine
end program
