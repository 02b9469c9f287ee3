/*
 * Solves a Poisson problem on a square by conjugate gradients, with PETSc. Prints the number of iterations
 * and the norm of the solution.
 */
#include <petscksp.h>

enum { SIDE = 200 };

static void fill_row(Mat matrix, PetscInt row) {
    PetscInt line = row / SIDE, column = row % SIDE;
    MatSetValue(matrix, row, row, 4.0, INSERT_VALUES);
    if (line > 0) {
        MatSetValue(matrix, row, row - SIDE, -1.0, INSERT_VALUES);
    }
    if (line < SIDE - 1) {
        MatSetValue(matrix, row, row + SIDE, -1.0, INSERT_VALUES);
    }
    if (column > 0) {
        MatSetValue(matrix, row, row - 1, -1.0, INSERT_VALUES);
    }
    if (column < SIDE - 1) {
        MatSetValue(matrix, row, row + 1, -1.0, INSERT_VALUES);
    }
}

int main(int argc, char **argv) {
    Mat matrix;
    Vec solution, right;
    KSP solver;
    PetscInt first, end, iterations;
    PetscReal norm;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, SIDE * SIDE, SIDE * SIDE, 5,
                           NULL, 5, NULL, &matrix));
    PetscCall(MatGetOwnershipRange(matrix, &first, &end));
    for (PetscInt row = first; row < end; row++) {
        fill_row(matrix, row);
    }
    PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
    PetscCall(MatCreateVecs(matrix, &solution, &right));
    PetscCall(VecSet(right, 1.0));
    PetscCall(KSPCreate(PETSC_COMM_WORLD, &solver));
    PetscCall(KSPSetOperators(solver, matrix, matrix));
    PetscCall(KSPSetType(solver, KSPCG));
    PetscCall(KSPSetTolerances(solver, 1e-10, PETSC_DEFAULT, PETSC_DEFAULT, 2000));
    PetscCall(KSPSolve(solver, right, solution));
    PetscCall(KSPGetIterationNumber(solver, &iterations));
    PetscCall(VecNorm(solution, NORM_2, &norm));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "iterations %d norm %.10f\n", (int)iterations,
                          (double)norm));
    PetscCall(KSPDestroy(&solver));
    PetscCall(MatDestroy(&matrix));
    PetscCall(VecDestroy(&solution));
    PetscCall(VecDestroy(&right));
    PetscCall(PetscFinalize());
    return 0;
}
