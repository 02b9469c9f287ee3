"""The process group: torch.distributed's calls as collectives of a communicator."""

import datetime

from torch._C._distributed_c10d import Backend

from .._exchanges import StoreExchange
from .._tributary import AbortedError, Communicator
from ._channels import Channels
from ._tensors import InPlace, Joined, Reduction, as_bytes, check, memory, one
from ._work import Timed, TributaryWork, Watch

# Tags of ours, which no program's are: those are not negative.
GATHER_TAG, SCATTER_TAG, ALL_TO_ALL_TAG = -1, -2, -3

# The first group's communicator, whose place at the manager later ones share.
_world = None


def create(options, _backend_options=None):
    """Makes a process group, when torch.distributed asks for one. Collective over its ranks."""
    global _world
    label = f"torch {options.group_id}"
    rank, size = options.group_rank, options.group_size
    parent = _world if options.global_ranks_in_group else None
    exchange = StoreExchange(options.store, rank, size, "tributary")
    made = Communicator.from_exchange(exchange, rank, size, label=label, parent=parent, computes_beside=True)
    if parent is None:
        _world = made
    return TributaryBackend(made, options.store, options.timeout)


def nothing():
    """What there is to do after most collectives."""


class TributaryBackend(Backend):
    """A process group of the backend `tributary`. torch.distributed makes it; see its documentation for what
    each method is to do."""

    # What torch would ask itself in a circle, if a class in Python did not answer.
    supports_coalescing = supports_splitting = supports_shrinking = supports_time_estimate = False

    def __init__(self, communicator, store, timeout):
        super().__init__(communicator.rank, communicator.size)
        self._communicator, self._timeout = communicator, timeout
        self._channels = Channels(communicator, store, timeout.total_seconds())
        self._watch = Watch(communicator)

    def name(self):
        return "tributary"

    def getBackendName(self):
        return "tributary"

    _get_backend_name = getBackendName

    # Collectives of the library.

    def allreduce(self, tensors, opts):
        check(tensors)
        return self._reduced("all_reduce", "allreduce", tensors, opts, ())

    def allreduce_coalesced(self, tensors, opts):
        check(tensors)
        return self._reduced("all_reduce_coalesced", "allreduce", tensors, opts, ())

    def reduce(self, tensors, opts):
        tensor, root = one(tensors), opts.rootRank
        if root == self._communicator.rank:
            return self._reduced("reduce", "reduce", tensors, opts, (root,))
        # Other ranks' tensors stay as they are.
        reduction = Reduction(opts.reduceOp, tensor.dtype, self._communicator.size)
        dense = InPlace(tensor).dense
        return self._launch("reduce", opts, [("reduce", (memory(dense), None, reduction.name, root))], tensors)

    def _reduced(self, name, method, tensors, opts, root):
        places = [InPlace(tensor) for tensor in tensors]
        size = self._communicator.size
        reductions = [Reduction(opts.reduceOp, tensor.dtype, size) for tensor in tensors]
        calls = [(method, (memory(place.dense), None, reduction.name, *root))
                 for place, reduction in zip(places, reductions)]

        def finish():
            for place, reduction in zip(places, reductions):
                reduction.finish(place.dense)
                place.store()

        return self._launch(name, opts, calls, tensors, finish)

    def broadcast(self, tensors, opts):
        tensor = one(tensors)
        place = InPlace(tensor)
        return self._launch("broadcast", opts, [("broadcast", (as_bytes(place.dense), opts.rootRank))], tensors,
                            place.store)

    def barrier(self, opts):
        return self._launch("barrier", opts, [("barrier", ())], [])

    def all_gather_single(self, output, input, opts):
        return self._gathered_single("all_gather_single", [output], [input], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        return self._gathered_single("all_gather_single_coalesced", outputs, inputs, opts)

    def _gathered_single(self, name, outputs, inputs, opts):
        check([*outputs, *inputs])
        places = [InPlace(output) for output in outputs]
        calls = [("allgather", (as_bytes(input.contiguous()), as_bytes(place.dense)))
                 for place, input in zip(places, inputs)]
        return self._launch(name, opts, calls, outputs, lambda: [place.store() for place in places])

    def allgather(self, output_lists, inputs, opts):
        outputs, input = output_lists[0], one(inputs)
        check(outputs)
        if any(output.numel() != input.numel() for output in outputs):
            return self._gathered_uneven(outputs, input, opts)
        joined = Joined(outputs, loads=False)
        call = ("allgather", (as_bytes(input.contiguous()), as_bytes(joined.dense)))
        return self._launch("all_gather", opts, [call], output_lists, joined.store)

    def _gathered_uneven(self, outputs, input, opts):
        outputs[self._communicator.rank].copy_(input)
        places = [InPlace(output) for output in outputs]
        calls = [("broadcast", (as_bytes(place.dense), root)) for root, place in enumerate(places)]
        return self._launch("all_gather", opts, calls, [outputs], lambda: [place.store() for place in places])

    def allgather_coalesced(self, output_lists, inputs, opts):
        # One list of outputs for each input.
        joined = [Joined(outputs, loads=False) for outputs in output_lists]
        calls = [("allgather", (as_bytes(input.contiguous()), as_bytes(each.dense)))
                 for each, input in zip(joined, inputs)]
        return self._launch("all_gather_coalesced", opts, calls, output_lists,
                            lambda: [each.store() for each in joined])

    def reduce_scatter_single(self, output, input, opts):
        return self._scattered_single("reduce_scatter_single", [output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return self._scattered_single("reduce_scatter_single_coalesced", outputs, inputs, opts)

    def _scattered_single(self, name, outputs, inputs, opts):
        check([*outputs, *inputs])
        vectors = [(input.contiguous(), None) for input in inputs]
        return self._scattered(name, outputs, vectors, opts)

    def reduce_scatter(self, outputs, input_lists, opts):
        output, inputs = one(outputs), input_lists[0]
        check(inputs)
        joined = Joined(inputs, loads=True)
        is_even = all(count == output.numel() for count in joined.counts)
        return self._scattered("reduce_scatter", [output], [(joined.dense, None if is_even else joined.counts)],
                               opts)

    def _scattered(self, name, outputs, vectors, opts):
        places = [InPlace(output) for output in outputs]
        size = self._communicator.size
        reductions = [Reduction(opts.reduceOp, output.dtype, size) for output in outputs]
        calls = [("reduce_scatter", (memory(vector), memory(place.dense), reduction.name, counts))
                 for place, reduction, (vector, counts) in zip(places, reductions, vectors)]

        def finish():
            for place, reduction in zip(places, reductions):
                reduction.finish(place.dense)
                place.store()

        return self._launch(name, opts, calls, outputs, finish)

    # The names of these before torch 2.15, which other parts of it still use.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # From rank to rank.

    def send(self, tensors, target, tag):
        dense = InPlace(one(tensors)).dense
        return TributaryWork([self._channels.send(as_bytes(dense), target, tag)], tensors, nothing)

    def recv(self, tensors, source, tag):
        place = InPlace(one(tensors))
        return TributaryWork([self._channels.receive(as_bytes(place.dense), source, tag)], tensors, place.store)

    def recv_anysource(self, tensors, tag):
        raise NotImplementedError("the backend tributary receives from a rank that is named: pass its number")

    recvAnysource = recv_anysource

    def gather(self, output_lists, inputs, opts):
        input = one(inputs)
        own, root = self._communicator.rank, opts.rootRank
        if own != root:
            transfers = [self._channels.send(as_bytes(input.contiguous()), root, GATHER_TAG)]
            return self._transferred(transfers, [])
        return self._received(output_lists[0], {own: input}, [], GATHER_TAG)

    def gather_single(self, output, input, opts):
        is_root = self._communicator.rank == opts.rootRank
        blocks = list(output.view(self._communicator.size, -1).unbind()) if is_root else []
        flat = input.contiguous().reshape(-1)
        return self.gather([blocks], [flat], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs, input_lists, opts):
        output = one(outputs)
        own, root = self._communicator.rank, opts.rootRank
        if own == root:
            inputs = input_lists[0]
            check(inputs)
            output.copy_(inputs[own])
            others = ((rank, input) for rank, input in enumerate(inputs) if rank != own)
            transfers = [self._channels.send(as_bytes(input.contiguous()), rank, SCATTER_TAG)
                         for rank, input in others]
            return self._transferred(transfers, outputs)
        place = InPlace(output)
        transfers = [self._channels.receive(as_bytes(place.dense), root, SCATTER_TAG)]
        return self._transferred(transfers, outputs, place.store)

    def alltoall(self, outputs, inputs, opts):
        check([*outputs, *inputs])
        own = self._communicator.rank
        sends = [self._channels.send(as_bytes(input.contiguous()), rank, ALL_TO_ALL_TAG)
                 for rank, input in enumerate(inputs) if rank != own and input.numel()]
        return self._received(outputs, {own: inputs[own]}, sends, ALL_TO_ALL_TAG)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):
        size = self._communicator.size

        def parts(tensor, splits):
            return list(tensor.split(splits)) if splits else list(tensor.chunk(size))

        if not output.is_contiguous():
            raise ValueError("all_to_all_single needs a contiguous output")
        return self.alltoall(parts(output, output_splits), parts(input.contiguous(), input_splits), opts)

    alltoall_base = all_to_all_single

    def _received(self, outputs, own, transfers, tag):
        """Receives every rank's part but those that are here already."""
        check(outputs)
        places = {rank: InPlace(output) for rank, output in enumerate(outputs) if rank not in own}
        for rank, input in own.items():
            outputs[rank].copy_(input.reshape(outputs[rank].shape))
        receives = [self._channels.receive(as_bytes(place.dense), rank, tag)
                    for rank, place in places.items() if place.dense.numel()]
        return self._transferred([*transfers, *receives], outputs,
                                 lambda: [place.store() for place in places.values()])

    def _transferred(self, transfers, result, finish=nothing):
        return TributaryWork(transfers, result, finish)

    # How operations run.

    def _launch(self, name, opts, calls, result, finish=nothing):
        """Runs `calls`, each a method of the communicator and its arguments, then `finish`: to the end if the
        program waits anyway, else beside it."""
        deadline = self._watch.begin(name, self._limit_s(opts))
        if getattr(opts, "asyncOp", True):
            requests = [getattr(self._communicator, f"i{method}")(*arguments) for method, arguments in calls]
            if not requests:
                deadline.end()
                return TributaryWork([], result, finish)
            deadline.is_over = requests[-1].done
            return TributaryWork([Timed(requests, deadline)], result, finish)
        try:
            for method, arguments in calls:
                getattr(self._communicator, method)(*arguments)
        except AbortedError as error:
            deadline.blame(error)
        finally:
            deadline.end()
        return TributaryWork([], result, finish)

    def _limit_s(self, opts):
        timeout = getattr(opts, "timeout", self._timeout)
        if not isinstance(timeout, datetime.timedelta) or timeout <= datetime.timedelta(0):
            timeout = self._timeout
        return timeout.total_seconds()

    # The end.

    def abort(self):
        self._channels.close()
        self._communicator.abort()

    def shutdown(self):
        self._channels.close()
        self._communicator.close()
