"""torch.distributed's calls that are transfers between pairs of ranks."""

from ._checks import check, check_alike, check_pairs, check_ranks, check_root, check_types, one, one_list, split
from ._collectives import nothing
from ._profiling import profiled
from ._tensors import InPlace, dense
from ._transfers import Receive, Send
from ._work import TributaryWork

# Tags of ours, which no program's are: those are not negative.
GATHER_TAG, SCATTER_TAG, ALL_TO_ALL_TAG = -1, -2, -3


class PairwiseCollectives:
    """Methods of a process group; `_communicator`, `_transfers`, `_timeout_s` and `_limit_s` are the group's."""

    def send(self, tensors, target, tag):
        name = f"send to rank {target}"
        return self._transferred(name, [Send(target, tag, dense(one(tensors)))], tensors, limit_s=self._timeout_s)

    def recv(self, tensors, source, tag):
        return self._received(f"recv from rank {source}", tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        return self._received("recv from any rank", tensors, None, tag)

    def _received(self, name, tensors, source, tag):
        place = InPlace(one(tensors))
        # As over Gloo, what comes may be shorter than the tensor.
        transfer = Receive(source, tag, place.dense, is_exact=False)
        return self._transferred(name, [transfer], tensors, place.store, self._timeout_s)

    def gather(self, output_lists, inputs, opts):
        input = one(inputs)
        own, root, size = self._communicator.rank, opts.rootRank, self._communicator.size
        check_root("gather", root, size)
        if own != root:
            if output_lists:
                raise ValueError("gather needs outputs at the root alone")
            return self._transferred("gather", [Send(root, GATHER_TAG, dense(input))], [], opts=opts)
        outputs = one_list("gather", output_lists)
        check(outputs)
        check_ranks("gather", outputs, size)
        check_alike("gather", outputs, input)
        return self._collected("gather", outputs, input, [], GATHER_TAG, opts)

    def gather_single(self, output, input, opts):
        is_root = self._communicator.rank == opts.rootRank
        blocks = [list(output.view(self._communicator.size, -1).unbind())] if is_root else []
        return self.gather(blocks, [input.contiguous().reshape(-1)], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs, input_lists, opts):
        output = one(outputs)
        own, root, size = self._communicator.rank, opts.rootRank, self._communicator.size
        check_root("scatter", root, size)
        if own != root:
            if input_lists:
                raise ValueError("scatter needs inputs at the root alone")
            place = InPlace(output)
            transfer = Receive(root, SCATTER_TAG, place.dense)
            return self._transferred("scatter", [transfer], outputs, place.store, opts=opts)
        inputs = one_list("scatter", input_lists)
        check(inputs)
        check_ranks("scatter", inputs, size)
        check_alike("scatter", inputs, output)
        copy(output, inputs[own])
        transfers = [Send(rank, SCATTER_TAG, dense(input)) for rank, input in enumerate(inputs) if rank != own]
        return self._transferred("scatter", transfers, outputs, opts=opts)

    def alltoall(self, outputs, inputs, opts):
        size = self._communicator.size
        check_pairs("all_to_all", outputs, inputs)
        check_ranks("all_to_all", inputs, size)
        check_types("all_to_all", [*outputs, *inputs])
        own = self._communicator.rank
        check_alike("all_to_all", [inputs[own]], outputs[own])
        return self._exchanged("all_to_all", outputs, inputs, opts)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):
        name, size, own = "all_to_all_single", self._communicator.size, self._communicator.rank
        check_types(name, [one([output]), one([input])])
        place = InPlace(output)
        outputs = split(f"the output of {name}", place.dense, output_splits, size)
        inputs = split(f"the input of {name}", dense(input), input_splits, size)
        check_alike(name, [inputs[own]], outputs[own])
        return self._exchanged(name, outputs, inputs, opts, [output], place.store)

    alltoall_base = all_to_all_single

    def _exchanged(self, name, outputs, inputs, opts, result=None, finish=nothing):
        own = self._communicator.rank
        sends = [Send(rank, ALL_TO_ALL_TAG, dense(input)) for rank, input in enumerate(inputs)
                 if rank != own and input.numel()]
        return self._collected(name, outputs, inputs[own], sends, ALL_TO_ALL_TAG, opts, result, finish)

    def _collected(self, name, outputs, own, sends, tag, opts, result=None, finish=nothing):
        """Receives every rank's part but this rank's, which is here. Of all_to_all's parts, empty ones do not go."""
        copy(outputs[self._communicator.rank], own)
        places = {rank: InPlace(output) for rank, output in enumerate(outputs) if rank != self._communicator.rank}
        receives = [Receive(rank, tag, place.dense) for rank, place in places.items()
                    if place.dense.numel() or tag != ALL_TO_ALL_TAG]

        def store():
            for place in places.values():
                place.store()
            finish()

        return self._transferred(name, [*sends, *receives], outputs if result is None else result, store, opts=opts)

    def _transferred(self, name, transfers, result, finish=nothing, limit_s=None, opts=None):
        self._sequence += 1
        is_collective = opts is not None
        limit_s = self._limit_s(opts) if is_collective else limit_s
        with profiled(name.split(" ")[0], [transfer.tensor for transfer in transfers]):
            batch = self._transfers.begin(name, transfers, limit_s, is_collective)
        return TributaryWork([batch], result, finish)


def copy(target, source):
    """Copies elements, apart from any graph."""
    target.detach().copy_(source.detach().reshape(target.shape))
