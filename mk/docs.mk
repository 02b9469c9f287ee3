# The book of docs/, built with mdBook into build/docs. mdBook is compiled once, into build/tools.

MDBOOK_VERSION := 0.5.4
MDBOOK := build/tools/bin/mdbook
MDBOOK_STAMP := build/tools/mdbook-$(MDBOOK_VERSION).stamp

.PHONY: docs
docs: $(MDBOOK_STAMP) ## Build the book of docs/ in build/docs; fails on a warning or a dead link
	@rm -rf build/docs
	@$(MDBOOK) build >build/docs.log 2>&1; status=$$?; cat build/docs.log; \
	test $$status = 0 && ! grep -E '^ *(WARN|ERROR)|\[(WARN|ERROR)\]' build/docs.log >/dev/null || \
	{ echo "docs: mdBook failed or warned" >&2; exit 1; }
	$(PYTHON) tools/links.py
	$(PYTHON) tools/links.py --html build/docs

# Without CARGO_TARGET_DIR, cargo compiles mdBook in a temporary folder and removes it.
$(MDBOOK_STAMP):
	@mkdir -p build/tools
	rm -f build/tools/mdbook-*.stamp
	env -u CARGO_TARGET_DIR $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --quiet --root build/tools
	@echo mdbook $(MDBOOK_VERSION) > $@
