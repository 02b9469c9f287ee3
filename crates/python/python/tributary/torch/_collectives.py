"""torch.distributed's collectives that are collectives of the library."""

from .._tributary import AbortedError
from ._checks import (check, check_alike, check_pairs, check_parts, check_ranks, check_root, check_types, one,
                      one_list)
from ._sparse import sum_sparse
from ._profiling import is_profiling, profiled
from ._tensors import InPlace, Joined, as_bytes, dense, memory, reduction_of
from ._work import Timed, TributaryWork


def nothing():
    """What there is to do after most collectives."""


class LibraryCollectives:
    """Methods of a process group; `_communicator`, `_watch` and `_limit_s` are the group's."""

    def allreduce(self, tensors, opts):
        if tensors and tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, opts)
        one(tensors)
        return self._reduced("all_reduce", "allreduce", tensors, opts, ())

    def allreduce_coalesced(self, tensors, opts):
        check(tensors)
        return self._reduced("all_reduce_coalesced", "allreduce", tensors, opts, ())

    def allreduce_sparse(self, tensors, opts):
        # How long the parts are has to be known before they can go, so the program waits here.
        sum_sparse(self._communicator, tensors, opts, lambda calls: self._run("all_reduce", opts, calls, []))
        return TributaryWork([], tensors, nothing)

    def reduce(self, tensors, opts):
        tensor, root = one(tensors), opts.rootRank
        check_root("reduce", root, self._communicator.size)
        if root == self._communicator.rank:
            return self._reduced("reduce", "reduce", tensors, opts, (root,))
        # Other ranks' tensors stay as they are.
        reduction = reduction_of(opts.reduceOp, tensor.dtype, self._communicator.size)
        call = ("reduce", (memory(dense(tensor)), None, reduction.name, root))
        return self._launch("reduce", opts, [call], tensors)

    def _reduced(self, name, method, tensors, opts, root):
        places = [InPlace(tensor) for tensor in tensors]
        size = self._communicator.size
        reductions = [reduction_of(opts.reduceOp, tensor.dtype, size) for tensor in tensors]
        calls = [(method, (memory(place.dense), None, reduction.name, *root))
                 for place, reduction in zip(places, reductions)]

        def finish():
            for place, reduction in zip(places, reductions):
                reduction.finish(place.dense)
                place.store()

        return self._launch(name, opts, calls, tensors, finish)

    def broadcast(self, tensors, opts):
        tensor = one(tensors)
        check_root("broadcast", opts.rootRank, self._communicator.size)
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
        check_pairs(name, outputs, inputs)
        for output, input in zip(outputs, inputs):
            check_parts(name, output, input, self._communicator.size)
        places = [InPlace(output) for output in outputs]
        calls = [("allgather", (as_bytes(dense(input)), as_bytes(place.dense)))
                 for place, input in zip(places, inputs)]
        return self._launch(name, opts, calls, outputs, lambda: [place.store() for place in places])

    def allgather(self, output_lists, inputs, opts):
        outputs, input = one_list("all_gather", output_lists), one(inputs)
        check(outputs)
        check_ranks("all_gather", outputs, self._communicator.size)
        check_types("all_gather", [*outputs, input])
        check_alike("all_gather", [input], outputs[self._communicator.rank])
        # By the outputs alone, which are alike at all ranks.
        if any(output.numel() != outputs[0].numel() for output in outputs):
            return self._gathered_uneven(outputs, input, opts)
        joined = Joined(outputs, loads=False)
        call = ("allgather", (as_bytes(dense(input)), as_bytes(joined.dense)))
        return self._launch("all_gather", opts, [call], outputs, joined.store)

    def _gathered_uneven(self, outputs, input, opts):
        places = [InPlace(output) for output in outputs]
        own = places[self._communicator.rank].dense
        own.copy_(input.detach().reshape(own.shape))
        calls = [("broadcast", (as_bytes(place.dense), root)) for root, place in enumerate(places)]
        return self._launch("all_gather", opts, calls, outputs, lambda: [place.store() for place in places])

    def allgather_coalesced(self, output_lists, inputs, opts):
        # One list of outputs for each rank, as long as the inputs.
        name = "all_gather_coalesced"
        check(inputs)
        check_ranks(name, output_lists, self._communicator.size)
        for outputs in output_lists:
            check_pairs(name, outputs, inputs)
            for output, input in zip(outputs, inputs):
                check_alike(name, [output], input)
        joined = [Joined(list(of_all), loads=False) for of_all in zip(*output_lists)]
        calls = [("allgather", (as_bytes(dense(input)), as_bytes(each.dense)))
                 for each, input in zip(joined, inputs)]
        return self._launch(name, opts, calls, output_lists, lambda: [each.store() for each in joined])

    def reduce_scatter_single(self, output, input, opts):
        return self._scattered_single("reduce_scatter_single", [output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return self._scattered_single("reduce_scatter_single_coalesced", outputs, inputs, opts)

    def _scattered_single(self, name, outputs, inputs, opts):
        check_pairs(name, outputs, inputs)
        for output, input in zip(outputs, inputs):
            check_parts(name, input, output, self._communicator.size)
        return self._scattered(name, outputs, [(dense(input), None) for input in inputs], opts)

    def reduce_scatter(self, outputs, input_lists, opts):
        output, inputs = one(outputs), one_list("reduce_scatter", input_lists)
        check(inputs)
        check_ranks("reduce_scatter", inputs, self._communicator.size)
        check_types("reduce_scatter", [*inputs, output])
        check_alike("reduce_scatter", [output], inputs[self._communicator.rank])
        joined = Joined(inputs, loads=True)
        is_even = all(count == output.numel() for count in joined.counts)
        return self._scattered("reduce_scatter", [output], [(joined.dense, None if is_even else joined.counts)],
                               opts)

    def _scattered(self, name, outputs, vectors, opts):
        places = [InPlace(output) for output in outputs]
        size = self._communicator.size
        reductions = [reduction_of(opts.reduceOp, output.dtype, size) for output in outputs]
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

    # How operations run.

    def _launch(self, name, opts, calls, result, finish=nothing):
        """Runs `calls`, each a method of the communicator and its arguments, then `finish`: to the end if the
        program waits anyway, else beside it."""
        if not getattr(opts, "asyncOp", True):
            self._run(name, opts, calls, result)
            return TributaryWork([], result, finish)
        self._sequence += 1
        if not calls:
            return TributaryWork([], result, finish)
        deadline, requests = self._watch.begin(name, self._limit_s(opts), result), []
        try:
            with profiled(name, result):
                for method, arguments in calls:
                    requests.append(getattr(self._communicator, f"i{method}")(*arguments))
        finally:
            # Refused: what was started ends by itself, and nobody waits for what was not.
            deadline.check, deadline.is_over = (requests[-1].test, requests[-1].done) if requests else (
                nothing, lambda: True)
        return TributaryWork([Timed(requests, deadline)], result, finish)

    def _run(self, name, opts, calls, tensors):
        """Runs `calls` to their end."""
        self._sequence += 1
        deadline = self._watch.begin(name, self._limit_s(opts), tensors)
        try:
            # A context that does nothing takes as long as a short operation's data.
            if is_profiling():
                with profiled(name, tensors):
                    self._call(calls)
            else:
                self._call(calls)
        except AbortedError as error:
            deadline.blame(error)
        finally:
            deadline.end()

    def _call(self, calls):
        for method, arguments in calls:
            getattr(self._communicator, method)(*arguments)
