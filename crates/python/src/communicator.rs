//! `tributary.Communicator`: the ranks, and the collectives of their buffers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_client::{Context, Sums};
use tributary_rendezvous::Rendezvous;

use crate::arguments::{Asked, seconds};
use crate::bootstrap::Exchange;
use crate::errors::SetUpError;
use crate::interrupt;
use crate::lane::Lane;
use crate::process::ContextOf;
use crate::request::Request;
use crate::split::split;

/// Ranks that run collectives together.
///
/// Settings come from the environment, as for MPI programs: TRIBUTARY_MANAGER names the manager of the
/// aggregation nodes, and `tributary config` lists the others. Blocking and nonblocking operations queue up
/// together. Every method that runs an operation lets other threads run, and raises RankLostError,
/// HostLostError or AbortedError if it fails; the communicator is then of no further use.
#[pyclass(frozen, weakref, module = "tributary")]
pub(crate) struct Communicator {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) label: String,
    pub(crate) is_on_one_host: bool,
    /// How floats are added; none if the settings say it.
    pub(crate) sums: Option<Sums>,
    pub(crate) context: Arc<Context>,
    /// None once it is closed.
    pub(crate) lane: Mutex<Option<Arc<Lane>>>,
    /// A child that a fork made shares nothing but the memory's content.
    pub(crate) process: u32,
}

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

impl Communicator {
    fn check_root(&self, root: u32) -> PyResult<bool> {
        if root >= self.size {
            let (label, size) = (&self.label, self.size);
            return Err(PyValueError::new_err(format!(
                "root {root} is not a rank of {label}, which has {size}"
            )));
        }
        Ok(root == self.rank)
    }

    fn reduction(
        &self,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        root: u32,
    ) -> PyResult<Asked> {
        let is_root = self.check_root(root)?;
        Asked::reduce(source, target, op, root, is_root)
    }

    fn scattering(
        &self,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        counts: Option<Vec<u64>>,
    ) -> PyResult<Asked> {
        Asked::reduce_scatter(source, target, op, counts, self.rank, self.size)
    }
}

/// How floats are added, by its word.
fn sums_of(word: Option<&str>) -> PyResult<Option<Sums>> {
    let parse = |word| {
        Sums::parse(word).ok_or_else(|| {
            PyValueError::new_err(format!("sums are \"ordered\" or \"exact\", not {word:?}"))
        })
    };
    word.map(parse).transpose()
}

#[pymethods]
impl Communicator {
    /// Meets the other ranks at `address` ("HOST:PORT"), at which rank 0 listens. Collective.
    ///
    /// Waits for `timeout` seconds at most in each exchange. `label` names the communicator in the report and
    /// in errors. The address belongs on a network that the job's users trust. `sums` says how reductions add floats,
    /// "ordered" or "exact", as rank 0 passes it; by default TRIBUTARY_SUMS does, and in a part of a communicator that one's.
    ///
    /// Raises SetUpError, which says which ranks are missing.
    #[staticmethod]
    #[pyo3(signature = (address, rank, size, *, timeout=60.0, label=None, sums=None))]
    fn connect(
        py: Python<'_>,
        address: &str,
        rank: u32,
        size: u32,
        timeout: f64,
        label: Option<&str>,
        sums: Option<&str>,
    ) -> PyResult<Self> {
        let sums = sums_of(sums)?;
        let timeout = seconds(timeout)?.max(Duration::from_millis(1));
        let label = label.unwrap_or("rendezvous");
        py.detach(|| {
            let mut met = Rendezvous::meet(address, rank, size, timeout)
                .map_err(|error| error.to_string())?;
            Self::create(&mut met, ContextOf::New { computes_beside: false }, label, sums)
        })
        .map_err(SetUpError::new_err)
    }

    /// Meets the other ranks through any object with `allgather(bytes) -> bytes`, which gives every rank
    /// the bytes of all, of equal lengths, in rank order. Collective. `parent` is as in `from_store`. Ranks that
    /// compute while operations are outstanding say so by `computes_beside`: waits then leave their core to
    /// others soon, unless TRIBUTARY_WAIT says how to wait. With a parent it is as there.
    ///
    /// Raises SetUpError, whose cause is what the object raised.
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    #[staticmethod]
    #[pyo3(signature = (exchange, rank, size, *, label="exchange", parent=None, computes_beside=false, sums=None))]
    fn from_exchange(
        py: Python<'_>,
        exchange: Py<PyAny>,
        rank: u32,
        size: u32,
        label: &str,
        parent: Option<&Self>,
        computes_beside: bool,
        sums: Option<&str>,
    ) -> PyResult<Self> {
        let sums = sums_of(sums)?;
        if rank >= size {
            return Err(PyValueError::new_err(format!(
                "rank {rank} of {size}: ranks are counted from 0"
            )));
        }
        let context = parent.map_or(ContextOf::New { computes_beside }, |parent| {
            ContextOf::Parent(Arc::clone(&parent.context))
        });
        let mut exchange = Exchange::new(exchange, rank, size);
        let created = py.detach(|| Self::create(&mut exchange, context, label, sums));
        created.map_err(|problem| {
            let error = SetUpError::new_err(problem);
            error.set_cause(py, exchange.into_raised());
            error
        })
    }

    /// Meets the other ranks through a store of torch.distributed. Collective.
    ///
    /// `prefix` is this communicator's own in the store; one that is closed leaves it free for the next. `parent`
    /// is a communicator that has these ranks among its own: the new one shares its place at the manager. Either
    /// all ranks pass it or none does. Waits as long as the store does.
    ///
    /// Raises SetUpError.
    #[staticmethod]
    #[pyo3(signature = (store, rank, size, *, prefix="tributary", label="store", parent=None, sums=None))]
    fn from_store<'py>(
        store: Object<'_, 'py>,
        rank: u32,
        size: u32,
        prefix: &str,
        label: &str,
        parent: Option<Py<Self>>,
        sums: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let exchanges = store.py().import("tributary._exchanges")?;
        exchanges.call_method1("from_store", (store, rank, size, prefix, label, parent, sums))
    }

    /// The ranks of a communicator of mpi4py. Collective. Raises SetUpError.
    #[staticmethod]
    #[pyo3(signature = (communicator, *, label="mpi", sums=None))]
    fn from_mpi<'py>(
        communicator: Object<'_, 'py>,
        label: &str,
        sums: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let exchanges = communicator.py().import("tributary._exchanges")?;
        exchanges.call_method1("from_mpi", (communicator, label, sums))
    }

    /// Parts the ranks: those with the same `color` get a communicator, ordered by `key` and then by rank;
    /// those with a negative one get None. Collective. Raises SetUpError.
    #[pyo3(signature = (color, key=0, *, label=None, sums=None))]
    fn split(
        &self,
        py: Python<'_>,
        color: i64,
        key: i64,
        label: Option<&str>,
        sums: Option<&str>,
    ) -> PyResult<Option<Self>> {
        let sums = sums_of(sums)?.or(self.sums);
        let lane = self.lane()?;
        let part = || split(&lane, &self.context, self.rank, self.size, color, key);
        let (met, raised) = py.detach(|| interrupt::watch_interrupts(part));
        if let Some(raised) = raised {
            return Err(raised);
        }
        let met = met.map_err(|error| error.raise(py))?;
        let Some(mut met) = met else { return Ok(None) };
        let context = ContextOf::Parent(Arc::clone(&self.context));
        let label = label.map_or_else(|| format!("{}/split", self.label), str::to_owned);
        let part = py.detach(|| Self::create(&mut met, context, &label, sums));
        part.map(Some).map_err(SetUpError::new_err)
    }

    /// This process's rank, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// Its name in the report and in errors.
    #[getter]
    fn label(&self) -> &str {
        &self.label
    }

    /// Whether all ranks are on one host.
    #[getter]
    fn is_on_one_host(&self) -> bool {
        self.is_on_one_host
    }

    /// The address at which ranks of other hosts reach this one. Raises SetUpError if nothing tells it.
    fn host_address(&self) -> PyResult<String> {
        let address = self.context.own_address();
        address
            .map(|address| address.to_string())
            .map_err(|error| SetUpError::new_err(error.to_string()))
    }

    /// The ports at which a listener for ranks of other hosts may be, to be tried in this order; 0 lets the system
    /// choose.
    fn host_ports(&self) -> Vec<u16> {
        self.context.ports()
    }

    /// Reduces every rank's vector element by element, and gives the result to all.
    ///
    /// `source` and `target` have n elements of one type each. Without a target the result replaces the source.
    ///
    /// Raises BufferError for memory that is read-only, not contiguous or overlapping, TypeError for elements
    /// that differ or on which `op` is not defined, ValueError for lengths that differ.
    #[pyo3(signature = (source, target=None, op="sum"))]
    fn allreduce(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
    ) -> PyResult<()> {
        self.run(py, &Asked::allreduce(source, target, op)?)
    }

    /// `allreduce`, nonblocking.
    #[pyo3(signature = (source, target=None, op="sum"))]
    fn iallreduce(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
    ) -> PyResult<Request> {
        self.start(py, Asked::allreduce(source, target, op)?)
    }

    /// Reduces every rank's vector element by element, and gives the result to `root`.
    ///
    /// `source` and, at the root, `target` have n elements of one type each. Without a target the result
    /// replaces the root's source. Other ranks' targets are not looked at. Raises as `allreduce`.
    #[pyo3(signature = (source, target=None, op="sum", root=0))]
    fn reduce(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        root: u32,
    ) -> PyResult<()> {
        self.run(py, &self.reduction(source, target, op, root)?)
    }

    /// `reduce`, nonblocking.
    #[pyo3(signature = (source, target=None, op="sum", root=0))]
    fn ireduce(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        root: u32,
    ) -> PyResult<Request> {
        self.start(py, self.reduction(source, target, op, root)?)
    }

    /// Gives all ranks the content of `root`'s buffer: n bytes of any elements. The root's may be read-only.
    ///
    /// Raises BufferError for memory that is read-only or not contiguous, ValueError if there is no such root.
    #[pyo3(signature = (buffer, root=0))]
    fn broadcast(&self, py: Python<'_>, buffer: Object<'_, '_>, root: u32) -> PyResult<()> {
        let is_root = self.check_root(root)?;
        self.run(py, &Asked::broadcast(buffer, root, is_root)?)
    }

    /// `broadcast`, nonblocking.
    #[pyo3(signature = (buffer, root=0))]
    fn ibroadcast(&self, py: Python<'_>, buffer: Object<'_, '_>, root: u32) -> PyResult<Request> {
        let is_root = self.check_root(root)?;
        self.start(py, Asked::broadcast(buffer, root, is_root)?)
    }

    /// Waits until every rank has come to it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, &Asked::barrier())
    }

    /// `barrier`, nonblocking.
    fn ibarrier(&self, py: Python<'_>) -> PyResult<Request> {
        self.start(py, Asked::barrier())
    }

    /// Gives all ranks everyone's vector, in rank order.
    ///
    /// `source` has n elements of any type, `target` size * n of the same, such as an array of shape (size, n).
    /// None as the source takes this rank's own part of the target. Raises as `allreduce`.
    fn allgather(
        &self,
        py: Python<'_>,
        source: Option<Object<'_, '_>>,
        target: Object<'_, '_>,
    ) -> PyResult<()> {
        self.run(py, &Asked::allgather(source, target, self.rank, self.size)?)
    }

    /// `allgather`, nonblocking.
    fn iallgather(
        &self,
        py: Python<'_>,
        source: Option<Object<'_, '_>>,
        target: Object<'_, '_>,
    ) -> PyResult<Request> {
        self.start(py, Asked::allgather(source, target, self.rank, self.size)?)
    }

    /// Reduces every rank's vector element by element, and gives each rank its block of the result.
    ///
    /// `source` has as many elements as all blocks together, `target` those of this rank's block. Block i has
    /// `counts[i]` elements; without counts all have as many, n / size. Without a target the block replaces the
    /// first elements of the source, and the rest of it is of no use. Raises as `allreduce`.
    #[pyo3(signature = (source, target=None, op="sum", counts=None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        counts: Option<Vec<u64>>,
    ) -> PyResult<()> {
        self.run(py, &self.scattering(source, target, op, counts)?)
    }

    /// `reduce_scatter`, nonblocking.
    #[pyo3(signature = (source, target=None, op="sum", counts=None))]
    fn ireduce_scatter(
        &self,
        py: Python<'_>,
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        op: &str,
        counts: Option<Vec<u64>>,
    ) -> PyResult<Request> {
        self.start(py, self.scattering(source, target, op, counts)?)
    }

    /// The correctly rounded sum of all elements that the ranks have together: the same bits for any number of
    /// ranks, any distribution of the elements and any path.
    ///
    /// `array` has elements of float32 or float64, and any length at each rank. With an `axis` elements along it are
    /// summed, and the result is a NumPy array of the sums, whose shape is the same at all ranks. Without one it is a
    /// float.
    ///
    /// Raises BufferError for memory that is not contiguous, TypeError for other elements.
    #[pyo3(signature = (array, axis=None))]
    fn exact_sum<'py>(
        &self,
        array: Object<'_, 'py>,
        axis: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.sum_exactly(array, axis)
    }

    /// The correctly rounded sum of the products of two arrays' elements, over all ranks, as `exact_sum`.
    ///
    /// `left` and `right` are of one shape. Raises ValueError if they are not.
    #[pyo3(signature = (left, right, axis=None))]
    fn exact_dot<'py>(
        &self,
        left: Object<'_, 'py>,
        right: Object<'_, 'py>,
        axis: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.dot_exactly(left, right, axis)
    }

    /// Gives the communicator up at all ranks: operations that wait on it, and all later ones, raise
    /// AbortedError. Not collective.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let lane = self.lane()?;
        py.detach(|| lane.give_up());
        Ok(())
    }

    /// Leaves the communicator. Not collective. Operations that are outstanding are given up: wait for them
    /// first. Closing twice does nothing; a `with` block closes too.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.leave());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<tributary.Communicator {:?}: rank {} of {}>", self.label, self.rank, self.size)
    }
}
