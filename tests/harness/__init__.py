"""What tests, benchmarks and long runs have in common.

`places` says where things are, `compiling` compiles programs in C, `running` runs commands within a time, `processes` finds and ends
what is left of them, `labs` makes labs, `jobs` runs MPI programs there, `daemons` and `fabrics` start daemons, in a lab and beside
each other; `plugin` gives all that to pytest.
"""
