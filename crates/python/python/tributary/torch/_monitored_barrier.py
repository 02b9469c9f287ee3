"""A barrier that tells which ranks did not come: every rank reports to rank 0, which answers once all have."""

import time

import torch

from .._tributary import TributaryError
from ._transfers import Receive, Send, TransferTimeout

REPORT_TAG, ANSWER_TAG = -4, -5


def await_all(group, transfers, limit_s, waits_for_all):
    """Waits until every rank has come, for `limit_s` at most. Raises an error that names ranks that have not: the
    first, or all of them if rank 0 `waits_for_all`."""
    nothing = torch.empty(0, dtype=torch.uint8)
    if group.rank != 0:
        exchange = [Send(0, REPORT_TAG, nothing), Receive(0, ANSWER_TAG, nothing)]
        try:
            run(transfers, exchange, limit_s)
        except Exception as error:
            # The words that programs look for.
            raise TributaryError(
                f"Rank {group.rank} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0: {error}"
            ) from error
        return
    if limit_s <= 0:
        raise TributaryError("[Rank 0]: Rank 0 timed out in monitoredBarrier: it was given no time")
    until, absent = time.monotonic() + limit_s, {}
    reports = {rank: transfers.begin(f"report of rank {rank}", [Receive(rank, REPORT_TAG, nothing)], limit_s)
               for rank in range(1, group.size)}
    for rank, report in reports.items():
        try:
            wait(report)
        except Exception as error:
            absent[rank] = error
            if not waits_for_all:
                break
    if absent:
        raise_absent(absent, limit_s)
    left_s = max(until - time.monotonic(), 1)
    run(transfers, [Send(rank, ANSWER_TAG, nothing) for rank in reports], left_s)


def raise_absent(absent, limit_s):
    """Says who has not come, and why that is known."""
    ranks, [first, *_] = ", ".join(map(str, absent)), absent.values()
    word = "Ranks" if len(absent) > 1 else "Rank"
    why = "timed out" if isinstance(first, TransferTimeout) else str(first)
    text = f"[Rank 0]: {word} {ranks} failed to pass monitoredBarrier in {limit_s * 1e3:.0f} ms: {why}"
    raise TributaryError(text) from first


def run(transfers, exchange, limit_s):
    """Carries transfers to their end."""
    wait(transfers.begin("monitored_barrier", exchange, limit_s))


def wait(batch):
    """Waits for transfers; raises what failed."""
    batch.wait(None)
    batch.test()
