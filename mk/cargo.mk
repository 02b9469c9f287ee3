# How a release build is made, and the folder it goes to. mk/packages.mk sets both for an older glibc.

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR

CARGO_RELEASE ?= $(CARGO) build --release --locked
RELEASE_DIR ?= $(CARGO_TARGET_DIR)/release
