#!/usr/bin/env bash
# Runs an MPI program on four hosts of a lab: two leaf switches, an aggregator at each and one at the spine, all on this
# machine. It needs root, or a user who may make namespaces (docs/lab.md).
#
#   mpicc -O2 examples/allreduce.c -o allreduce && examples/lab.sh ./allreduce
set -euo pipefail

export TRIBUTARY_LAB=example-$$                       # a name, so that it disturbs no other lab
tributary lab up --hosts 4 --hosts-per-leaf 2
trap 'tributary lab down' EXIT

tributary lab exec h0 -- tributary tree               # the aggregators, as the manager sees them
export TRIBUTARY_BETWEEN_HOSTS=tree                   # to see the tree at work, whatever is fastest here
tributary lab run -- mpirun -n 4 "$@"
