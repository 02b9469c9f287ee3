//! Jobs: they are admitted, request groups, use them, request them again after a failure, and end.

mod leases;

use tributary_manager::{Caller, GroupError};
use tributary_wire::control::{GroupGrant, GroupRequest, JobPlace, JobRequest};

use super::agenda::{Item, LeaderId};
use super::fault_record::Key;
use super::job::{JobRun, Run, Want, WantState};
use super::member::Member;
use super::node_host::node_at;
use super::scenario::{GroupPlan, JobPlan};
use super::world::World;
use tributary_protocol_testing::values::{Below, TreeShape, mix};

/// Attempts to get a group and complete it. Together they take longer than any fault lasts.
const ATTEMPTS_MAX: u32 = 24;

/// Attempts to get a group while others have what it needs. Those may take long if many datagrams
/// are lost.
const WAITS_MAX: u32 = 1_000;

/// The pause after the first failed attempt. It doubles with each further one, up to the longest.
const RETRY_MIN_NS: u64 = 1_000_000;
const RETRY_MAX_NS: u64 = 2_000_000_000;

fn host_name(host: u32) -> String {
    format!("h{host}")
}

impl World<'_> {
    pub(super) fn job(&mut self, job: u32) -> &mut JobRun {
        &mut self.jobs[job as usize]
    }

    pub(super) fn want(&mut self, job: u32, group: u32) -> &mut Want {
        &mut self.jobs[job as usize].groups[group as usize]
    }

    fn job_plan(&self, job: u32) -> &JobPlan {
        self.scenario.job(job as usize)
    }

    pub(super) fn group_plan(&self, job: u32, group: u32) -> &GroupPlan {
        &self.job_plan(job).groups[group as usize]
    }

    /// Where the process with the job's lease runs.
    fn lease_machine(&self, job: u32) -> u32 {
        self.job_plan(job).hosts[0]
    }

    pub(super) fn on_admit(&mut self, job: u32) {
        if self.jobs[job as usize].is_over || self.jobs[job as usize].is_doomed {
            return;
        }
        let apart = self.apart_until(self.lease_machine(job), self.manager_machine());
        let now = self.now;
        let (Some(machine), None) = (&mut self.manager.machine, apart) else {
            let at = apart.unwrap_or(now + RETRY_MIN_NS * 100);
            self.agenda.put(at, Item::Admit { job });
            return;
        };
        let resume = self.jobs[job as usize].place;
        let request = JobRequest { name: format!("job{job}"), processes: 1, resume };
        let admission = machine
            .admit_job(&Caller::Operator, request)
            .expect("fewer jobs than the manager takes");
        let life = self.manager.life;
        let entry = self.job(job);
        entry.place = Some(JobPlace { job: admission.job, secret: admission.secret });
        (entry.lease, entry.leases) = (Some((life, admission)), entry.leases + 1);
        entry.is_being_admitted = false;
        let at = now + self.delay_ns();
        self.agenda.put(at, Item::Admitted { job, life });
    }

    pub(super) fn on_admitted(&mut self, job: u32, life: u32) {
        if self.jobs[job as usize].lease.as_ref().is_none_or(|(at, _)| *at != life) {
            return;
        }
        for group in 0..self.jobs[job as usize].groups.len() as u32 {
            let first = self.group_plan(job, group).after_ns;
            if self.want(job, group).state == WantState::Idle {
                let at = self.now + first;
                self.agenda.put(at, Item::GroupRequest { job, group });
            }
        }
    }

    pub(super) fn on_group_request(&mut self, job: u32, group: u32) {
        let entry = &mut self.jobs[job as usize];
        let is_idle = entry.groups[group as usize].state == WantState::Idle;
        if !is_idle || entry.is_doomed || entry.is_over {
            return;
        }
        let Some((life, _)) = entry.lease else {
            if !std::mem::replace(&mut entry.is_being_admitted, true) {
                let at = self.now + self.delay_ns();
                self.agenda.put(at, Item::Admit { job });
            }
            return;
        };
        let want = self.want(job, group);
        want.state = WantState::Requested;
        want.attempt += 1;
        let apart = self.apart_until(self.lease_machine(job), self.manager_machine());
        let at = apart.unwrap_or(self.now) + self.delay_ns();
        self.agenda.put(at, Item::Request { job, group, life });
    }

    pub(super) fn on_request(&mut self, job: u32, group: u32, life: u32) {
        let Some((leased, admission)) = self.jobs[job as usize].lease.clone() else { return };
        if leased != life || life != self.manager.life {
            return;
        }
        let plan = self.group_plan(job, group);
        // Another tree is to stream what the first one did, and no more: vectors are cut by that.
        let mut communicators = self.communicators.iter();
        let first = communicators.find(|it| (it.job, it.group) == (job, group) && !it.is_over);
        let request = GroupRequest {
            secret: admission.secret,
            label: String::new(),
            hosts: plan.hosts.iter().copied().map(host_name).collect(),
            frame_versions: self.scenario.job_versions(job),
            osos: plan.osos,
            payload_max_bytes: plan.payload_max_bytes,
            stream: first.map_or(plan.stream, |communicator| communicator.stream),
            external_receiver: plan.has_external_receiver(),
        };
        let attempt = self.want(job, group).attempt;
        let time = self.time_at(self.manager_machine());
        let Some(machine) = &mut self.manager.machine else { return };
        match machine.request_group(time, &Caller::Operator, admission.job, &request) {
            Ok(ticket) => self.manager.waiting.push((ticket, job, group, attempt)),
            Err(refusal) => self.answer(job, group, attempt, Err(refusal)),
        }
        self.pump_manager();
    }

    /// The manager has decided, and its answer travels to the job.
    pub(super) fn answer(
        &mut self,
        job: u32,
        group: u32,
        attempt: u32,
        decision: Result<GroupGrant, GroupError>,
    ) {
        let answer = decision.map(|grant| self.add_run(job, group, grant));
        if self.want(job, group).attempt == attempt {
            self.want(job, group).answer = Some(answer);
        }
        let at = self.now + self.delay_ns();
        self.agenda.put(at, Item::Decision { job, group, attempt });
    }

    fn add_run(&mut self, job: u32, group: u32, grant: GroupGrant) -> u32 {
        let run = self.runs.len() as u32;
        let key = Key::of(grant.epoch);
        let shape = self.shape_of(key, &grant);
        let operations = self.group_plan(job, group).script.len();
        self.trace.note(self.now, Some(key), || {
            format!("granted to job {job} as its group {group}, {} members", grant.endpoints.len())
        });
        self.runs.push(Run {
            key,
            job,
            group,
            tag: mix(self.scenario.seed ^ mix(u64::from(run) + 1)),
            grant,
            shape,
            members: Vec::new(),
            expected: vec![None; operations],
            communicator: None,
            disputed: None,
            is_over: false,
        });
        run
    }

    /// The tree that a group's aggregators were told to form, and that its members were told to join.
    fn shape_of(&self, key: Key, grant: &GroupGrant) -> TreeShape {
        let installs = &self.fault_record.find(key).expect("a granted group was ordered").installs;
        let at = |node: u32| {
            installs.iter().position(|(other, _)| *other == node).expect("the node was ordered")
        };
        let mut nodes: Vec<Vec<Below>> = installs
            .iter()
            .map(|(_, install)| vec![Below::Member(u32::MAX); install.children.len()])
            .collect();
        for (index, (_, install)) in installs.iter().enumerate() {
            if let Some(parent) = &install.parent {
                let above = at(node_at(&parent.address));
                nodes[above][usize::from(parent.child.0)] = Below::Node(index);
            }
        }
        for endpoint in &grant.endpoints {
            let place = &mut nodes[at(node_at(&endpoint.address))][usize::from(endpoint.child.0)];
            assert_eq!(*place, Below::Member(u32::MAX), "a place has one holder");
            *place = Below::Member(endpoint.endpoint.0);
        }
        TreeShape { nodes }
    }

    pub(super) fn on_decision(&mut self, job: u32, group: u32, attempt: u32) {
        let entry = &mut self.jobs[job as usize];
        let want = &mut entry.groups[group as usize];
        if want.state != WantState::Requested || want.attempt != attempt {
            return;
        }
        let Some(answer) = want.answer.take() else { return };
        if entry.is_doomed || entry.is_over {
            return;
        }
        match answer {
            Ok(run) => {
                want.state = WantState::Running(run);
                match want.communicator {
                    Some(communicator) => {
                        (want.attempts, want.waits) = (0, 0);
                        self.on_regrant(communicator, run);
                    }
                    None => self.add_members(run),
                }
            }
            Err(refusal) => self.on_group_refused(job, group, &refusal),
        }
    }

    fn on_group_refused(&mut self, job: u32, group: u32, refusal: &GroupError) {
        let needs = self.group_plan(job, group).osos;
        let is_impossible = match refusal {
            GroupError::NodeExhausted { node, .. } => {
                let plan = self.scenario.nodes.iter().find(|plan| plan.name == *node);
                plan.is_some_and(|plan| plan.osos < u32::from(needs))
            }
            GroupError::JobQuota { .. } => {
                self.scenario.manager.osos_per_job_max.is_some_and(|max| max < u32::from(needs))
            }
            _ => false,
        };
        let want = self.want(job, group);
        want.last_refusal = Some(refusal.to_string());
        let is_taken =
            matches!(refusal, GroupError::NodeExhausted { .. } | GroupError::JobQuota { .. });
        if is_impossible {
            self.request_no_more(job, group, WantState::Impossible);
            return;
        }
        if is_taken && want.waits < WAITS_MAX {
            want.waits += 1;
            // Waiting for others does not count as a failure, but the pause grows.
            let pause_ns = (RETRY_MIN_NS << want.waits.min(20)).min(RETRY_MAX_NS);
            want.state = WantState::Idle;
            let at = self.now + pause_ns + self.delay_ns();
            self.agenda.put(at, Item::GroupRequest { job, group });
            return;
        }
        // If the tree is too narrow, it may have lost an aggregator for a while, or it may always be too
        // narrow.
        let is_final = matches!(refusal, GroupError::Tree(_));
        let at_last = if is_final { WantState::Impossible } else { WantState::Starved };
        self.try_again(job, group, at_last);
    }

    fn try_again(&mut self, job: u32, group: u32, at_last: WantState) {
        let jitter_ns = self.delay_ns();
        let want = self.want(job, group);
        want.attempts += 1;
        if want.attempts > ATTEMPTS_MAX {
            self.request_no_more(job, group, at_last);
            return;
        }
        want.state = WantState::Idle;
        let pause_ns = (RETRY_MIN_NS << want.attempts.min(20)).min(RETRY_MAX_NS);
        let at = self.now + pause_ns + jitter_ns;
        self.agenda.put(at, Item::GroupRequest { job, group });
    }

    /// A group is not requested any more.
    fn request_no_more(&mut self, job: u32, group: u32, at_last: WantState) {
        let want = self.want(job, group);
        want.state = at_last;
        match want.communicator {
            Some(communicator) => self.end_treeless(communicator),
            None => self.end_if_done(job),
        }
    }

    fn add_members(&mut self, run: u32) {
        let members = self.place_members(run);
        let Run { job, group, .. } = self.runs[run as usize];
        if self.group_plan(job, group).survives {
            let communicator = self.add_communicator(run, &members);
            self.want(job, group).communicator = Some(communicator);
            self.give_to_leaders(run, communicator);
        }
        for member in members {
            let at = self.now + self.delay_ns() + self.think_ns();
            self.agenda.put(at, Item::Connect { member });
        }
    }

    /// The places of a group that was granted to leaders that have lost theirs.
    pub(super) fn add_places(&mut self, run: u32, communicator: u32) {
        let members = self.place_members(run);
        self.give_to_leaders(run, communicator);
        debug_assert_eq!(members.len(), self.communicators[communicator as usize].leaders.len());
    }

    /// The members of a granted group, in the order of its endpoints. None has connected yet.
    fn place_members(&mut self, run: u32) -> Vec<u32> {
        let grant = self.runs[run as usize].grant.clone();
        let Run { job, group, tag, .. } = self.runs[run as usize];
        let plan = self.scenario.job(job as usize).groups[group as usize].clone();
        let mut by_endpoint = vec![0; grant.endpoints.len()];
        for (endpoint, host) in grant.endpoints.iter().zip(&plan.hosts) {
            let member = self.members.len() as u32;
            by_endpoint[endpoint.endpoint.0 as usize] = member;
            self.members.push(Member::new(run, *host, &grant, endpoint, &plan, tag));
        }
        self.runs[run as usize].members.clone_from(&by_endpoint);
        by_endpoint
    }

    /// Lets leaders take the places of a group.
    fn give_to_leaders(&mut self, run: u32, communicator: u32) {
        let entry = &mut self.communicators[communicator as usize];
        let run = &mut self.runs[run as usize];
        (run.communicator, run.tag) = (Some(communicator), entry.tag);
        for (number, member) in run.members.iter().enumerate() {
            let id = LeaderId { communicator, number: number as u32 };
            self.members[*member as usize].take_leader(id, entry.tag);
        }
    }

    /// Checks whether a group has ended at all its members, and continues the job.
    pub(super) fn check_run_over(&mut self, run: u32) {
        let entry = &self.runs[run as usize];
        let members = entry.members.iter().map(|member| &self.members[*member as usize]);
        if entry.is_over || !members.clone().all(Member::is_over) {
            return;
        }
        let is_done = members.clone().all(Member::is_done);
        let (job, group, has_leaders) = (entry.job, entry.group, entry.communicator.is_some());
        self.runs[run as usize].is_over = true;
        if !has_leaders {
            self.conclude(job, group, is_done);
        }
    }

    /// A group has ended at all its members, with all their operations done or not.
    pub(super) fn conclude(&mut self, job: u32, group: u32, is_done: bool) {
        if self.jobs[job as usize].is_doomed || self.jobs[job as usize].is_over {
            return;
        }
        let want = self.want(job, group);
        if matches!(want.state, WantState::Impossible | WantState::Starved) {
            return self.end_if_done(job);
        }
        if !is_done {
            self.try_again(job, group, WantState::Starved);
            return;
        }
        want.rounds_left -= 1;
        want.state = if want.rounds_left == 0 { WantState::Done } else { WantState::Idle };
        want.attempts = 0;
        if want.state == WantState::Idle {
            let at = self.now + self.think_ns();
            self.agenda.put(at, Item::GroupRequest { job, group });
        }
        self.end_if_done(job);
    }

    /// Ends a job whose groups have all ended.
    fn end_if_done(&mut self, job: u32) {
        let entry = &self.jobs[job as usize];
        let is_done = |want: &Want| {
            matches!(want.state, WantState::Done | WantState::Impossible | WantState::Starved)
        };
        if !entry.is_over && entry.groups.iter().all(is_done) {
            self.job(job).is_over = true;
            let at = self.now + self.delay_ns();
            self.close_lease(job, at);
        }
    }
}
