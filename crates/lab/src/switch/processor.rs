//! Processor time of a lab, and the switch's priority.

use std::fs;
use std::io;

use crate::scheduling::Scheduling;

/// The switch's place among real-time processes: above ordinary ones, below the kernel's own threads.
const PRIORITY: libc::c_int = 40;

/// Gives this process real-time priority. Control groups of the first version have none to give, so the switch leaves
/// the lab's group if that refuses.
///
/// # Errors
/// If the system permits none.
pub(super) fn take_priority(scheduling: &Scheduling) -> io::Result<()> {
    let refused = match set_priority() {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    match scheduling.leave() {
        Ok(()) => set_priority(),
        Err(_) => Err(refused),
    }
}

fn set_priority() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call only reads `parameter`, which lives until it returns.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this process wake when it asked for, if it has no real-time priority: otherwise the kernel may add 50 us.
pub(super) fn wake_in_time() {
    // SAFETY: this option takes one number and accesses no memory. It can't fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Processor time of this process, in nanoseconds.
pub(super) fn own_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of all processes that this process's `/proc` shows, ended ones in that of their parents.
pub(super) fn all_ns() -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let stats = processes.filter_map(|name| fs::read_to_string(format!("/proc/{name}/stat")).ok());
    let ticks: u64 = stats.filter_map(|stat| ticks_of(&stat)).sum();
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

/// Ticks of a process and of the children it has waited for (fields 14 to 17 of `proc_pid_stat(5)`).
fn ticks_of(stat: &str) -> Option<u64> {
    // The name, in parentheses, may contain anything; what follows it starts with field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<u64> =
        fields.split(' ').skip(11).take(4).map(str::parse).collect::<Result<_, _>>().ok()?;
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4000 20 0 1 0 55 1 1";
        assert_eq!(ticks_of(stat), Some(4_123));
        assert_eq!(ticks_of("7 (a) S 1 7"), None);
    }
}
