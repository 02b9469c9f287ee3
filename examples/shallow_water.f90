! A shallow-water model: a hump of water spreads over a periodic square. Each step puts back the mass that rounding has lost, as
! climate models do, and prints the bits of mass and energy. With exact sums they are the same for any number of ranks; with those
! of MPI_Allreduce (`./shallow_water plain`) they differ, and so does the water, into which the corrections go. FORTRAN is
! crates/exact-c/fortran, and LIBRARIES the folder with libtributary_exact_c.so.
!
!     mpif90 -O2 -ffp-contract=off FORTRAN/tributary_exact.f90 examples/shallow_water.f90 -o shallow_water \
!         -LLIBRARIES -ltributary_exact_c
!     tributary run --hosts 2 -- mpirun -n 4 ./shallow_water
program shallow_water
   use mpi
   use tributary_exact
   implicit none
   integer, parameter :: real64 = kind(1.0d0), int64 = selected_int_kind(18)
   integer, parameter :: cells = 48, steps = 100
   real(real64), parameter :: gravity = 9.81d0, width = 1.0d0 / cells
   ! Height and both momenta of each cell, of the rank's rows and of one row more at each end, for the neighbours' values.
   real(real64), allocatable :: water(:, :, :), before(:, :, :)
   real(real64) :: totals(2), mass
   integer :: rank, ranks, first, last, below, above, step, ierr
   character(len=8) :: way

   call MPI_Init(ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
   call get_command_argument(1, way)
   first = rank * cells / ranks + 1
   last = (rank + 1) * cells / ranks
   below = modulo(rank - 1, ranks)
   above = modulo(rank + 1, ranks)
   allocate (water(3, cells, first - 1:last + 1), before(3, cells, first - 1:last + 1))

   call set_initial_state
   totals = mass_and_energy()
   mass = totals(1)
   do step = 1, steps
      before = water
      call exchange_rows
      call advance(0.4d0 * width / fastest_wave())
      totals = mass_and_energy()
      water(1, :, first:last) = water(1, :, first:last) + (mass - totals(1)) / cells**2
      if (rank == 0) print '(a, i0, 2(1x, z16.16))', 'step ', step, transfer(totals(1), 0_int64), transfer(totals(2), 0_int64)
   end do
   if (rank == 0) print '(i0, a, i0, a)', ranks, ' ranks: ', steps, ' steps'
   call MPI_Finalize(ierr)

contains

   subroutine set_initial_state
      integer :: i, j
      water = 0
      do j = first, last
         do i = 1, cells
            water(1, i, j) = 1 + 0.5d0 * exp(-50 * ((i * width - 0.4d0)**2 + (j * width - 0.6d0)**2))
         end do
      end do
   end subroutine set_initial_state

   ! The neighbours' rows at both ends; the rank above the last is the first.
   subroutine exchange_rows
      integer, parameter :: row = 3 * cells
      call MPI_Sendrecv(before(1, 1, last), row, MPI_DOUBLE_PRECISION, above, 0, before(1, 1, first - 1), row, &
                        MPI_DOUBLE_PRECISION, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(before(1, 1, first), row, MPI_DOUBLE_PRECISION, below, 1, before(1, 1, last + 1), row, &
                        MPI_DOUBLE_PRECISION, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
   end subroutine exchange_rows

   ! The speed of the fastest wave of all ranks. A maximum is the same in any order.
   real(real64) function fastest_wave()
      real(real64) :: own
      own = maxval(max(abs(before(2, :, first:last)), abs(before(3, :, first:last))) / before(1, :, first:last) &
                   + sqrt(gravity * before(1, :, first:last)))
      call MPI_Allreduce(own, fastest_wave, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
   end function fastest_wave

   ! A step of the scheme of Lax and Friedrichs: the mean of the four neighbours, less the difference of their fluxes.
   subroutine advance(seconds)
      real(real64), intent(in) :: seconds
      integer :: i, j, west, east
      do j = first, last
         do i = 1, cells
            west = modulo(i - 2, cells) + 1
            east = modulo(i, cells) + 1
            water(:, i, j) = (before(:, west, j) + before(:, east, j) + before(:, i, j - 1) + before(:, i, j + 1)) / 4 &
                             - seconds / (2 * width) * (flux(before(:, east, j), 2) - flux(before(:, west, j), 2) &
                                                        + flux(before(:, i, j + 1), 3) - flux(before(:, i, j - 1), 3))
         end do
      end do
   end subroutine advance

   ! What flows through a cell's border in the direction of its second or third component.
   pure function flux(cell, direction)
      real(real64), intent(in) :: cell(3)
      integer, intent(in) :: direction
      real(real64) :: flux(3)
      flux = cell * (cell(direction) / cell(1))
      flux(direction) = flux(direction) + gravity * cell(1)**2 / 2
   end function flux

   ! The sums of mass and energy over the cells of all ranks.
   function mass_and_energy() result(sums)
      real(real64) :: sums(2), own(2), terms(2, cells * (last - first + 1))
      terms(1, :) = reshape(water(1, :, first:last), [size(terms, 2)])
      terms(2, :) = reshape(gravity * water(1, :, first:last)**2 / 2 &
                            + (water(2, :, first:last)**2 + water(3, :, first:last)**2) / (2 * water(1, :, first:last)), &
                            [size(terms, 2)])
      if (way == 'plain') then
         own = sum(terms, dim=2)
         call MPI_Allreduce(own, sums, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
      else
         call tributary_exact_sum(terms, MPI_COMM_WORLD, sums, ierr)
      end if
   end function mass_and_energy
end program shallow_water
