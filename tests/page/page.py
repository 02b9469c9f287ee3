#!/usr/bin/env python3
"""Goal: the manager's page shows the fabric as it is, to whom it may, and asks nobody else for anything. Method:
headless Chromium on a manager with 100 nodes and 200 groups, a job of which runs; what the page says is compared
with what was started, and every request and complaint of the browser is looked at.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from playwright.sync_api import expect, sync_playwright

import fabric as fabrics

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "packages"))
import counts  # noqa: E402

TIMEOUT_MS = 300_000
HOSTS = 12
SPLITS = 100
GROUPS = 1 + 2 * SPLITS


def link(fabric):
    """What `tributary open` prints."""
    command = [fabric.program, "open", "--manager", fabric.address, "--token-file", fabric.token_file]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def check_doors(fabric):
    """Nothing without a cookie, no cookie without a code, a code once, and a cookie that only reads."""
    def status(method, path, **headers):
        return fabric.call(method, path, {} if method == "POST" else None, **headers)[0].status

    for path in ("/", "/page/main.js", "/v1/watch", "/open", "/open?code=", "/open?code=" + "0" * 64):
        assert status("GET", path) == 401, path
    opening = link(fabric).split(fabric.address)[1]
    answer, _ = fabric.call("GET", opening)
    assert answer.status == 303 and answer.getheader("location") == "/"
    cookie = answer.getheader("set-cookie")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert status("GET", opening) == 401, "a code is good once"
    cookie = cookie.split(";")[0]
    page, _ = fabric.call("GET", "/", cookie=cookie)
    policy = page.getheader("content-security-policy")
    assert page.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    for method, path in (("GET", "/v1/status"), ("GET", "/metrics"), ("POST", "/v1/drain"), ("POST", "/v1/jobs"),
                         ("POST", "/v1/page/codes"), ("POST", "/")):
        assert status(method, path, cookie=cookie) in (401, 405), path
    print("doors: closed without a cookie, codes are good once, cookies only read")


def start_app(fabric, environment, libraries):
    """A job that goes on and on, each rank a host of its own."""
    variables = {**os.environ, **counts.MPIRUN, "TRIBUTARY_MANAGER": fabric.address, "TRIBUTARY_BETWEEN_HOSTS": "tree",
                 "TRIBUTARY_TOKEN_FILE": str(fabric.token_file), "TRIBUTARY_HOSTS": str(HOSTS),
                 "TRIBUTARY_LIBRARY_PATH": str(libraries)}
    command = [fabric.program, "run", "--", environment / "bin" / "mpirun", "-n", HOSTS,
               environment / "bin" / "python", HERE / "app.py", SPLITS]
    log = (fabric.folder / "app.log").open("w")
    return subprocess.Popen([str(word) for word in command], env=variables, stdout=log, stderr=log,
                            start_new_session=True)


def check_page(page, fabric):
    """Everything that was started is there, and moves."""
    expect(page.locator("#connection")).to_have_text("live", timeout=TIMEOUT_MS)
    expect(page.locator("#nodes tbody tr")).to_have_count(fabrics.NODES, timeout=TIMEOUT_MS)
    expect(page.locator("#tree svg g")).to_have_count(fabrics.NODES)
    expect(page.locator("#groups tbody tr")).to_have_count(GROUPS, timeout=TIMEOUT_MS)
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    contributions = page.locator("#totals div", has_text="contributions/s").locator("dd")
    expect(contributions).to_have_text(re.compile("[1-9]"), timeout=TIMEOUT_MS)
    parents = {row.locator("td").nth(0).inner_text(): row.locator("td").nth(1).inner_text()
               for row in page.locator("#nodes tbody tr").all()}
    for name, children in fabrics.names().items():
        assert all(parents[child] == name for child in children), name
    print(f"page: {fabrics.NODES} nodes, {GROUPS} groups, {contributions.inner_text()} contributions/s")


def check_choosing(page):
    page.locator("#groups-filter").fill("spine4")
    expect(page.locator("#groups tbody tr")).not_to_have_count(0)
    assert page.locator("#groups tbody tr").count() < GROUPS
    row = page.locator("#groups tbody tr").first
    nodes_of_group = int(row.locator("td").nth(4).inner_text())
    row.click()
    expect(page.locator("#tree g:not(.aside)")).to_have_count(nodes_of_group)
    expect(page.locator("#tree path.chosen")).to_have_count(nodes_of_group - 1)
    page.locator("#legend button").click()
    expect(page.locator("#tree g.aside")).to_have_count(0)
    page.locator("#groups-filter").fill("")
    page.get_by_role("button", name="contributions/s").click()
    expect(page.locator("#nodes tbody tr").first.locator("td").nth(4)).to_have_text(re.compile("[1-9]"))
    print(f"page: a group of {nodes_of_group} nodes is found and shown in the tree")


def check_changes(page, fabric):
    """A node that dies goes; a node that is drained says so."""
    fabric.nodes["leaf01"].kill()
    expect(page.locator("#nodes tbody tr")).to_have_count(fabrics.NODES - 1, timeout=TIMEOUT_MS)
    expect(page.locator("#tree svg g")).to_have_count(fabrics.NODES - 1)
    subprocess.run([fabric.program, "drain", "leaf11", "--manager", fabric.address, "--token-file", fabric.token_file],
                   check=True, capture_output=True)
    expect(page.locator("#tree g.draining text")).to_have_text("leaf11")
    print("page: a dead node goes, a drained one is marked")


def ranks_of(fabric):
    """The processes of the job's ranks."""
    own = f"TRIBUTARY_TOKEN_FILE={fabric.token_file}".encode()
    for process in pathlib.Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"python") and own in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except (OSError, IndexError):
            continue  # it is none, or has ended


def check_late(page, fabric):
    """A rank that is stopped is late, and its host is named where its groups are."""
    late = page.locator("#groups tbody tr td:nth-child(9)").filter(has_text="#")
    expect(late).to_have_count(0, timeout=TIMEOUT_MS)
    rank = next(ranks_of(fabric))
    os.kill(rank, signal.SIGSTOP)
    try:
        expect(late.first).to_have_text(re.compile(r"#\d+ \(\d+ s\)$"), timeout=TIMEOUT_MS)
    finally:
        os.kill(rank, signal.SIGCONT)
    expect(late).to_have_count(0, timeout=TIMEOUT_MS)
    print("page: who is late is named")


def check_reach(page):
    """The page's policy keeps it from asking anybody else."""
    outcome = page.evaluate("fetch('http://127.0.0.2:9/').then(() => 'reached', (error) => String(error))")
    assert "TypeError" in outcome, outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tributary", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--libraries", type=pathlib.Path, required=True, help="the folder of the preload library")
    parser.add_argument("--environment", type=pathlib.Path, required=True, help="has mpi4py and an MPI")
    parser.add_argument("--browser", required=True, help="Chromium's program")
    parser.add_argument("--screenshot", type=pathlib.Path, help="where to put a picture of the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        fabric = fabrics.Fabric(options.tributary.resolve(), folder, HOSTS)
        app = None
        try:
            check_doors(fabric)
            app = start_app(fabric, options.environment.absolute(), options.libraries.resolve())
            watch(playwright, fabric, options)
        finally:
            if app:
                os.killpg(app.pid, 9)
                app.wait()
            fabric.close()


def watch(playwright, fabric, options):
    browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    complaints, strangers = [], []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: strangers.append(request.url) if fabric.address not in request.url else None)
    page.goto(link(fabric))
    check_page(page, fabric)
    check_choosing(page)
    if options.screenshot:
        page.wait_for_timeout(2000)
        page.screenshot(path=options.screenshot)
    check_late(page, fabric)
    check_changes(page, fabric)
    assert not complaints and not strangers, (complaints, strangers)
    check_reach(page)
    browser.close()
    print("page: no error in the browser, no request to anybody else")


if __name__ == "__main__":
    main()
