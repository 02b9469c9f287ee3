# Finds system programs that make targets need. As root on Debian, installs them; else names them.

# Some of them are in folders that are not on every user's PATH.
TOOLS_PATH := $(PATH):/usr/sbin:/sbin

# $(call system_tools,PURPOSE,TOOLS,PACKAGES): PACKAGES are Debian's names, which other distributions
# share.
define system_tools
@missing=; for tool in $(2); do \
	PATH="$(TOOLS_PATH)" command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
test -z "$$missing" && exit 0; \
if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	apt-get install -y -qq --no-install-recommends $(3) >/dev/null || \
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $(3) >/dev/null; }; \
else \
	echo "$(1) needs$$missing: install the packages $(3) as root" >&2; exit 1; \
fi
endef
