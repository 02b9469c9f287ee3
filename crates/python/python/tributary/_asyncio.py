"""Requests in coroutines."""

import asyncio


def completion(request):
    """What `await request` iterates over: a future of the running loop, settled when the request is over."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle():
        if future.done():  # the waiting task was cancelled
            return
        try:
            request.test()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def tell_loop():
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop is closed, and with it the task that awaited

    request.add_done_callback(tell_loop)
    return future.__await__()
