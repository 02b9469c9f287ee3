"""Calls that may take longer than their caller can wait."""

import concurrent.futures
import threading


def within(limit_s, action):
    """What `action` returns or raises; TimeoutError if it does neither within the limit. Its thread goes on then.

    torch's store looks for a server that is gone as long as the store's own timeout says: 30 minutes as a rule.
    """
    outcome = concurrent.futures.Future()

    def run():
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="tributary-within", daemon=True).start()
    return outcome.result(limit_s)
