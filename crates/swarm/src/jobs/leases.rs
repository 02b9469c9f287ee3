//! Leases: a job has one as long as its processes live.

use rand::RngExt;

use super::RETRY_MIN_NS;
use crate::agenda::Item;
use crate::job::WantState;
use crate::timeouts::SILENCE_NS;
use crate::world::World;

impl World<'_> {
    /// The job's end of the lease closes; the manager learns of it later.
    pub(crate) fn close_lease(&mut self, job: u32, at: u64) {
        let entry = self.job(job);
        if let Some((life, _)) = entry.lease {
            let lease = entry.leases;
            self.agenda.put(at, Item::LeaseOver { job, lease, life });
        }
    }

    pub(crate) fn on_lease_over(&mut self, job: u32, lease: u32, life: u32) {
        let entry = &mut self.jobs[job as usize];
        if entry.leases != lease {
            return;
        }
        let Some((leased, admission)) = entry.lease.take() else { return };
        if leased != life || life != self.manager.life {
            return;
        }
        self.trace.note(self.now, None, || format!("job {job}'s lease is over"));
        self.blame_manager_for(job);
        if let Some(machine) = &mut self.manager.machine {
            machine.handle_lease_closed(admission.job);
        }
        self.pump_manager();
        self.ask_anew(job);
    }

    /// The manager may withdraw all of a job's groups from now on.
    fn blame_manager_for(&mut self, job: u32) {
        let now = self.now;
        for run in &self.runs {
            if run.job == job && !run.is_over {
                self.fault_record.entry(run.key).blame_manager(now);
            }
        }
    }

    /// The manager died, so every lease it gave ends.
    pub(crate) fn lose_leases(&mut self) {
        for job in 0..self.jobs.len() as u32 {
            if self.job(job).lease.take().is_some() {
                self.ask_anew(job);
            }
        }
    }

    /// The answer that the job was waiting for will not come.
    fn ask_anew(&mut self, job: u32) {
        for group in 0..self.jobs[job as usize].groups.len() as u32 {
            let want = self.want(job, group);
            if want.state == WantState::Requested {
                want.answer = None;
                want.state = WantState::Idle;
            }
            if want.state == WantState::Idle {
                let at = self.now + RETRY_MIN_NS;
                self.agenda.put(at, Item::GroupRequest { job, group });
            }
        }
    }

    /// Leases across a partition end on both sides.
    pub(crate) fn part_leases(&mut self) {
        for job in 0..self.jobs.len() as u32 {
            let machine = self.lease_machine(job);
            if self.apart_until(machine, self.manager_machine()).is_some() {
                let at = self.now;
                self.close_lease(job, at);
            }
        }
    }

    /// A job has lost a process. Its launcher notices after a while, and ends the others.
    pub(crate) fn doom(&mut self, job: u32, lost_machine: u32, is_silent: bool) {
        let holds_lease = lost_machine == self.lease_machine(job);
        if holds_lease {
            let after_ns = if is_silent { SILENCE_NS } else { self.delay_ns() };
            let at = self.now + after_ns;
            self.close_lease(job, at);
        }
        if !std::mem::replace(&mut self.job(job).is_doomed, true) {
            let at = self.now + SILENCE_NS + self.random.random_range(500_000_000..3_000_000_000);
            self.agenda.put(at, Item::JobEnds { job });
        }
    }

    /// The launcher of a job that lost a process ends the rest of it.
    pub(crate) fn end_doomed(&mut self, job: u32) {
        self.trace.note(self.now, None, || format!("job {job} is ended by its launcher"));
        self.job(job).is_over = true;
        for member in 0..self.members.len() as u32 {
            let run = self.members[member as usize].run;
            if self.runs[run as usize].job == job {
                self.kill_member(member, false);
            }
        }
        self.kill_leaders(|it, _| it.job == job, false);
        let at = self.now + self.delay_ns();
        self.close_lease(job, at);
    }
}
