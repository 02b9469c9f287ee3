//! What the processes of one job share: who is where, and the job's place at the manager.

use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tributary_wire::control::{JobAdmission, JobRequest};

use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::job::Job;
use crate::job_fabric::{self, Met, Unreachable};
use crate::leaf::Leaf;
use crate::manager::{Lease, ManagerClient, ManagerError};
use crate::measurements::Measurements;
use crate::rdma;
use crate::roomy_stack::with_room;
use tributary_inter_host::{AddressError, own_address, wait_for_departures};
use tributary_settings::{
    FabricChoice, InterfaceChoice, Ports, Requirement, Settings, Switch, WaitChoice,
};
use tributary_shm_collectives::waiting::Policy;
use tributary_transport::token::Token;

/// Aggregation nodes that an embedded fabric runs on the machine beside the ranks.
const EMBEDDED_NODES: u32 = 3;

/// How long a process stays for other hosts that still need its last results. Where a link's first packet was lost twice, TCP is 3 s
/// late.
const DEPARTURES_PATIENCE: Duration = Duration::from_secs(5);

/// One process's part of a job.
pub struct Context {
    pub(crate) settings: Settings,
    /// This process's host: the machine's name, with `#i` where it acts as several hosts.
    pub(crate) host: String,
    /// The machine's name.
    pub(crate) machine: String,
    /// At which leaf switch it is.
    pub(crate) leaf: Leaf,
    pub(crate) policy: Policy,
    /// Whether no two threads of this process are in a communicator at a time.
    pub(crate) callers_take_turns: bool,
    /// Processes and threads of the job that want a core of this machine.
    busy: u32,
    pub(crate) job: Option<Job>,
    /// Why the manager that is named has not admitted the job; none if it has, or none is named.
    without_manager: Option<String>,
    /// Where the job makes direct links itself: this host's address for them, or why they can't be.
    job_links: Option<Result<Met, Unreachable>>,
    /// Communicators of several hosts are the underlying MPI's, which has an RDMA network.
    pub(crate) is_left_to_mpi: bool,
    authenticates_frames: bool,
    pub(crate) communicators: AtomicUsize,
    /// Communicators created so far.
    created: AtomicUsize,
    /// What was measured of the system.
    pub(crate) measurements: Measurements,
    /// Whether a group was asked for already.
    has_asked_group: AtomicBool,
    /// Whether datagrams between hosts were found not to come through.
    lacks_datagrams: AtomicBool,
    lacks_multicast: AtomicBool,
}

/// Why a job goes without us. Every rank gets the same one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The launcher's world failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

/// What rank 0 tells the others about the manager.
#[derive(Serialize, Deserialize)]
enum Admission {
    /// No manager is named.
    NoManager,
    Admitted(JobAdmission),
    /// It may admit the job later.
    Awaited(String),
    /// It will not admit the job.
    Refused(String),
}

impl Admission {
    /// Why a manager that is named has not admitted the job.
    fn problem(&self) -> Option<&str> {
        match self {
            Self::NoManager | Self::Admitted(_) => None,
            Self::Awaited(problem) | Self::Refused(problem) => Some(problem),
        }
    }
}

/// What joins the hosts of the job.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum HostsJoinedBy {
    /// The manager; nothing as long as it has not admitted the job.
    Manager,
    /// The job itself.
    Job,
    /// The underlying MPI, which has an RDMA network.
    Mpi,
    /// Nothing may.
    Nothing,
}

impl Drop for Context {
    /// Returns when no other host needs what this process has completed.
    fn drop(&mut self) {
        wait_for_departures(DEPARTURES_PATIENCE);
    }
}

impl Context {
    /// Opens the job's context. Collective over all its processes. What joins hosts is what rank 0's settings say.
    ///
    /// A manager that does not answer, or admits no job, costs the job its trees alone: [`Self::without_manager`].
    ///
    /// # Errors
    /// If the exchange fails; the same on all ranks.
    pub fn open(world: &mut dyn Bootstrap, settings: Settings) -> Result<Self, OpenError> {
        with_room(|| Self::open_with_all(world, settings))
    }

    fn open_with_all(world: &mut dyn Bootstrap, mut settings: Settings) -> Result<Self, OpenError> {
        let machine = tributary_transport::machine::name();
        let machines = allgather_texts(world, &machine)?;
        let neighbours = machines.iter().filter(|name| **name == machine).count() as u32;
        let host = host_name(&machine, &machines, world.rank(), settings.hosts);
        // Hosts that one machine acts as have no network between them.
        let spans_machines = neighbours < world.size();
        let mpi_may_be_faster =
            |world: &dyn Bootstrap| spans_machines && world.is_mpi() && rdma::has_active_port();
        let (job, word) = open_job(world, &settings, mpi_may_be_faster)?;
        settings.fabric = word.fabric.unwrap_or(FabricChoice::Off);
        settings.requirement = word.requirement;
        let interface = || word.interface.as_deref().and_then(InterfaceChoice::parse);
        settings.interface = settings.interface.or_else(interface);
        settings.ports = settings.ports.or_else(|| word.ports.as_deref().and_then(Ports::parse));
        settings.manager = word.manager.filter(|_| job.is_some());
        let is_admitted = job.as_ref().is_some_and(|job| job.admission().is_some());
        let job_links = (!is_admitted && settings.fabric.joins_by_job())
            .then(|| job_fabric::meet(world, &machines, &settings))
            .transpose()?;
        let address = spans_machines.then(|| address_among(&job_links, &settings).ok()).flatten();
        let leaf = Leaf::find(&settings, &machine, address);
        let busy = if settings.hosts > 1 { neighbours + EMBEDDED_NODES } else { neighbours };
        let policy = match settings.wait {
            WaitChoice::Auto => Policy::for_crowd(busy, cores_granted()),
            WaitChoice::Spin => Policy::Spin,
            WaitChoice::Sleep => Policy::Sleep,
        };
        Ok(Self {
            settings,
            host,
            machine,
            leaf,
            policy,
            callers_take_turns: false,
            busy,
            job,
            without_manager: word.without_manager,
            job_links,
            is_left_to_mpi: word.fabric.is_none(),
            authenticates_frames: word.authenticates_frames,
            communicators: AtomicUsize::new(0),
            created: AtomicUsize::new(0),
            measurements: word.measurements,
            has_asked_group: AtomicBool::new(false),
            lacks_datagrams: AtomicBool::new(false),
            lacks_multicast: AtomicBool::new(false),
        })
    }

    /// Takes the caller's word that no two of its threads are in one communicator at a time, which
    /// an MPI below `MPI_THREAD_MULTIPLE` promises. Blocking operations then take no lock. For
    /// communicators made from now on.
    ///
    /// # Safety
    /// It is so: calls into a communicator, and into its requests, are ordered one behind the other
    /// (by happens-before), whichever threads make them.
    pub unsafe fn callers_take_turns(&mut self) {
        self.callers_take_turns = true;
    }

    /// How many processes a host group of `ranks` shares its cores with, for choosing how to wait.
    pub(crate) fn crowd(&self, ranks: u32) -> u32 {
        match self.settings.wait {
            WaitChoice::Auto => self.busy,
            WaitChoice::Spin => ranks,
            WaitChoice::Sleep => u32::MAX,
        }
    }

    /// The blocking collective at which a communicator that was just created is to be set up; 0 if that is now. A set-up
    /// takes milliseconds, and programs may create communicators by the thousand that see few collectives. Collective over
    /// its ranks, and the same on all of them: it waits for its uses if a single rank has created its share.
    ///
    /// # Errors
    /// If the exchange fails.
    pub fn sets_up_after(&self, bootstrap: &mut dyn Bootstrap) -> Result<u32, BootstrapError> {
        // Relaxed: a count of this process, nothing is published with it.
        let created = self.created.fetch_add(1, Ordering::Relaxed);
        let is_eager = created < self.settings.communicators_eager;
        let mine: u32 = if is_eager { 0 } else { self.settings.communicators_after };
        let mut all = vec![0; bootstrap.size() as usize * size_of_val(&mine)];
        bootstrap.allgather(&mine.to_le_bytes(), &mut all)?;
        let (each, _) = all.as_chunks();
        Ok(each.iter().map(|bytes| u32::from_le_bytes(*bytes)).max().unwrap_or(mine))
    }

    /// Whether the group that is asked for now is the one that an external receiver may read: the first
    /// of the job, so that of all its ranks, if the user wants any.
    pub(crate) fn takes_external_receiver(&self) -> bool {
        // Relaxed: a flag of this process, nothing is published with it.
        let is_first = !self.has_asked_group.swap(true, Ordering::Relaxed);
        is_first && self.settings.external_receiver.is_some()
    }

    /// Whether datagrams come through between the job's hosts, as far as this process has tried.
    pub(crate) fn has_datagrams(&self) -> bool {
        // Relaxed: a flag of this process, nothing is published with it.
        !self.lacks_datagrams.load(Ordering::Relaxed)
    }

    /// Datagrams of some host did not come to another. It is not tried again: every try would cost a set-up its patience.
    pub(crate) fn note_lack_of_datagrams(&self) {
        self.lacks_datagrams.store(true, Ordering::Relaxed);
    }

    /// Whether multicasts come through between the job's hosts, as far as this process has tried.
    pub(crate) fn has_multicast(&self) -> bool {
        // Relaxed: as above.
        !self.lacks_multicast.load(Ordering::Relaxed)
    }

    /// Multicasts of some host did not come to another. They are not tried again, as datagrams are not.
    pub(crate) fn note_lack_of_multicast(&self) {
        self.lacks_multicast.store(true, Ordering::Relaxed);
    }

    /// Whether frames between hosts are authenticated. The same on all ranks: rank 0's admission holds. What the site wants, a
    /// manager that is away can't say, so they are.
    pub(crate) fn authenticates_frames(&self) -> bool {
        self.authenticates_frames
    }

    /// Why the manager that is named has not admitted the job; none if it has, or none is named. The same on all ranks.
    #[must_use]
    pub fn without_manager(&self) -> Option<&str> {
        self.without_manager.as_deref()
    }

    /// What rank 0's user should know of a manager that has not admitted the job, or of measurements that can't be used, in one
    /// line.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let hope = match &self.job {
            Some(_) => "the job starts without a tree, and takes one when the manager grants it",
            None => "the job has no tree",
        };
        let of_manager = self.without_manager().map(|problem| format!("{problem}; {hope}"));
        let all: Vec<String> = of_manager.into_iter().chain(self.measurements.remark()).collect();
        (!all.is_empty()).then(|| all.join(". "))
    }

    /// Where other hosts reach this one.
    ///
    /// # Errors
    /// If nothing tells that.
    pub fn own_address(&self) -> Result<IpAddr, AddressError> {
        address_among(&self.job_links, &self.settings)
    }

    /// Listens where other hosts reach this one.
    ///
    /// # Errors
    /// If nothing tells where that is, or no port is free; in one line.
    pub fn listen(&self) -> Result<TcpListener, String> {
        let address = self.own_address().map_err(|error| error.to_string())?;
        let ports = self.settings.ports;
        job_fabric::listen(address, ports).map_err(|error| match ports {
            Some(ports) => {
                format!("can't listen at {address}, ports {ports} (TRIBUTARY_PORTS): {error}")
            }
            None => format!("can't listen at {address}: {error}"),
        })
    }

    /// The ports at which to listen for other hosts, to be tried in this order; 0 lets the system choose.
    pub fn ports(&self) -> Vec<u16> {
        let start = std::process::id();
        self.settings.ports.map_or_else(|| vec![0], |ports| ports.from(start).collect())
    }

    /// Why the job's hosts can't be joined by links that the job makes itself, in one line that names both ends and the
    /// port; none if they can, or are not to be. The same on all ranks.
    pub fn unreachable(&self) -> Option<&str> {
        self.job_links.as_ref()?.as_ref().err().map(|Unreachable(problem)| problem.as_str())
    }

    /// What was wrong on the network that the job would have used, in such a line; none if it is used, or none is. The same
    /// on all ranks.
    pub fn passed_over(&self) -> Option<&str> {
        self.job_links.as_ref()?.as_ref().ok()?.passed_over.as_deref()
    }

    /// Takes a place for one more communicator, or says that there is none.
    pub(crate) fn reserve(&self) -> bool {
        // Relaxed: a bound, not a lock; nothing is published with it.
        let max = self.settings.communicators_max;
        self.communicators
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < max).then_some(used + 1)
            })
            .is_ok()
    }

    /// Gives a communicator's place back.
    pub(crate) fn release(&self) {
        self.communicators.fetch_sub(1, Ordering::Relaxed);
    }
}

/// This host's address for others: on the job's own links, else by the settings.
fn address_among(
    job_links: &Option<Result<Met, Unreachable>>,
    settings: &Settings,
) -> Result<IpAddr, AddressError> {
    match job_links {
        Some(Ok(met)) => Ok(met.address),
        _ => own_address(
            settings.host_address,
            settings.interface.as_ref(),
            settings.manager.as_deref(),
        ),
    }
}

/// The name of the host that `rank` belongs to. Where a machine acts as several hosts, its ranks
/// are dealt to them in blocks.
fn host_name(machine: &str, machines: &[String], rank: u32, hosts: u32) -> String {
    if hosts == 1 {
        return machine.to_owned();
    }
    let is_here = |name: &&String| *name == machine;
    let here = machines.iter().filter(is_here).count() as u64;
    let before = machines[..rank as usize].iter().filter(is_here).count() as u64;
    format!("{machine}#{}", before * u64::from(hosts) / here)
}

/// What rank 0 says, for all.
struct Word {
    /// None where the underlying MPI has an RDMA network.
    fabric: Option<FabricChoice>,
    manager: Option<String>,
    interface: Option<String>,
    ports: Option<String>,
    requirement: Requirement,
    /// Why the manager that is named has not admitted the job.
    without_manager: Option<String>,
    authenticates_frames: bool,
    measurements: Measurements,
}

/// What of rank 0's settings holds for all: other ranks may lack its environment.
#[derive(Serialize, Deserialize)]
struct Shared {
    manager: Option<String>,
    token_file: Option<PathBuf>,
    /// What is in that file, for ranks that can't read it; none unless the user hands it on.
    token: Option<String>,
    interface: Option<String>,
    ports: Option<String>,
    /// [`Requirement::name`].
    requirement: String,
    measurements: Measurements,
}

/// What rank 0 tells all ranks of the job.
#[derive(Serialize, Deserialize)]
struct Answer {
    admission: Admission,
    joined_by: HostsJoinedBy,
    shared: Shared,
}

/// What rank 0 keeps of its call to the manager.
#[derive(Default)]
struct Asked {
    client: Option<Result<ManagerClient, ManagerError>>,
    lease: Option<Lease>,
}

impl Asked {
    /// Asks the manager that the settings name, if they name one, for a place for the job.
    fn ask_manager(
        &mut self,
        world: &dyn Bootstrap,
        settings: &Settings,
        request: &JobRequest,
        mpi_may_be_faster: impl Fn(&dyn Bootstrap) -> bool,
    ) -> Answer {
        let named = settings.manager.as_deref();
        self.client =
            named.map(|address| ManagerClient::new(address, settings.token_file.as_deref()));
        let admission = match self.client.as_ref().map(|client| admit(client, request)) {
            None => Admission::NoManager,
            Some(Ok(granted)) => Admission::Admitted(self.lease.insert(granted).admission.clone()),
            Some(Err(error)) if error.may_pass() => Admission::Awaited(error.to_string()),
            Some(Err(error)) => Admission::Refused(error.to_string()),
        };
        let joined_by = match (&admission, settings.fabric) {
            (_, FabricChoice::Off) => HostsJoinedBy::Nothing,
            (Admission::Admitted(_), _) | (_, FabricChoice::Manager) => HostsJoinedBy::Manager,
            // A user who names a manager wants more than the MPI.
            (Admission::NoManager, FabricChoice::Auto) if mpi_may_be_faster(world) => {
                HostsJoinedBy::Mpi
            }
            (_, FabricChoice::Auto | FabricChoice::Job) => HostsJoinedBy::Job,
        };
        let serves_tuning =
            matches!(&admission, Admission::Admitted(admitted) if admitted.has_tuning);
        let serving = self.client.as_ref().filter(|_| serves_tuning);
        let serving = serving.and_then(|client| client.as_ref().ok());
        let shared = Shared::of(settings, Measurements::find(settings, serving));
        Answer { admission, joined_by, shared }
    }
}

/// The job's place at the manager, if one is named that may give it trees; beside it, how else its hosts may be joined. Rank 0's
/// settings decide, and `mpi_may_be_faster` is asked there alone.
fn open_job(
    world: &mut dyn Bootstrap,
    settings: &Settings,
    mpi_may_be_faster: impl Fn(&dyn Bootstrap) -> bool,
) -> Result<(Option<Job>, Word), OpenError> {
    let request = JobRequest { name: program_name(), processes: world.size(), resume: None };
    let mut asked = Asked::default();
    let answer = (world.rank() == 0)
        .then(|| asked.ask_manager(world, settings, &request, mpi_may_be_faster));
    let text = serde_json::to_string(&answer).expect("an admission is plain data");
    let text = broadcast_text(world, 0, &text)?;
    let damaged = || BootstrapError("the job's admission arrived damaged".to_owned());
    let answer: Option<Answer> = serde_json::from_str(&text).map_err(|_| damaged())?;
    let Answer { admission, joined_by, shared } = answer.ok_or_else(damaged)?;
    let Asked { client, lease } = asked;
    let without_manager = admission.problem().map(str::to_owned);
    let may_admit = matches!(admission, Admission::Admitted(_) | Admission::Awaited(_));
    let address = shared.manager.as_deref().filter(|_| may_admit);
    let job = address.map(|address| {
        let token_file = settings.token_file.as_deref().or(shared.token_file.as_deref());
        let handed_on = || Token::handed_on(shared.token.as_deref()?).ok();
        let manager = client.unwrap_or_else(|| {
            ManagerClient::new(address, token_file).or_else(|error| {
                handed_on().map(|token| ManagerClient::with_token(address, &token)).ok_or(error)
            })
        });
        match &admission {
            Admission::Admitted(admitted) => {
                Job::from_admission(manager, request, admitted.clone(), lease)
            }
            _ => Job::awaiting_manager(manager, request),
        }
    });
    let authenticates_frames = match &admission {
        Admission::Admitted(admitted) => admitted.authenticate_frames,
        Admission::Awaited(_) => true,
        Admission::NoManager | Admission::Refused(_) => false,
    };
    let fabric = match joined_by {
        HostsJoinedBy::Manager => Some(FabricChoice::Manager),
        HostsJoinedBy::Job => Some(FabricChoice::Job),
        HostsJoinedBy::Mpi => None,
        HostsJoinedBy::Nothing => Some(FabricChoice::Off),
    };
    let Shared { manager, interface, ports, requirement, measurements, .. } = shared;
    let requirement = Requirement::parse(&requirement).ok_or_else(damaged)?;
    let word = Word {
        fabric,
        manager,
        interface,
        ports,
        requirement,
        without_manager,
        authenticates_frames,
        measurements,
    };
    Ok((job, word))
}

impl Shared {
    fn of(settings: &Settings, measurements: Measurements) -> Self {
        let own = settings.token_file.as_deref().filter(|_| settings.hand_on_token == Switch::On);
        let token = own.and_then(|file| Token::load(file).ok());
        Self {
            token: token.map(|token| token.reveal().to_owned()),
            manager: settings.manager.clone(),
            token_file: settings.token_file.clone(),
            interface: settings.interface.as_ref().map(ToString::to_string),
            ports: settings.ports.map(|ports| ports.to_string()),
            requirement: settings.requirement.name().to_owned(),
            measurements,
        }
    }
}

fn admit(
    client: &Result<ManagerClient, ManagerError>,
    request: &JobRequest,
) -> Result<Lease, ManagerError> {
    client.as_ref().map_err(Clone::clone)?.admit(request)
}

/// The name of the running program.
fn program_name() -> String {
    let program = std::env::current_exe().ok();
    program
        .as_deref()
        .and_then(|path| path.file_name())
        .map_or_else(|| "unnamed".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Cores this process may use.
fn cores_granted() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Alone;

    fn names(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn emulated_hosts_are_blocks_of_each_machines_ranks() {
        let machines = names("a a a b a b");
        let hosts: Vec<String> =
            (0..6).map(|rank| host_name(&machines[rank], &machines, rank as u32, 2)).collect();
        assert_eq!(hosts, names("a#0 a#0 a#1 b#0 a#1 b#1"));
        assert_eq!(host_name("a", &machines, 0, 1), "a");
    }

    #[test]
    fn hosts_are_left_to_a_faster_mpi_unless_the_job_was_named() {
        use FabricChoice::{Auto, Job, Manager, Off};
        for (fabric, mpi_may_be_faster, joins) in [
            (Auto, true, None),
            (Auto, false, Some(Job)),
            (Job, true, Some(Job)),
            (Manager, true, Some(Manager)),
            (Off, true, Some(Off)),
        ] {
            let settings = Settings { fabric, ..Settings::from_environment(|_| None).unwrap() };
            let (job, word) = open_job(&mut Alone, &settings, |_| mpi_may_be_faster).unwrap();
            assert!(job.is_none(), "no manager is named");
            assert_eq!(word.fabric, joins, "{fabric:?}, {mpi_may_be_faster}");
        }
    }
}
