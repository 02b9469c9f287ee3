//! `tributary rings`: the service of a host that delivers datagrams into the memory of its jobs.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::event::{EventfdFlags, eventfd};
use tributary_rings::{Event, Hook, Service, ServiceOptions};

use crate::daemons::{announce, raise_open_files};
use crate::flags::{HookFlag, RingsFlags};
use crate::signals::{self, Signals};

/// Serves until a signal asks to stop.
pub(crate) fn serve(flags: RingsFlags) -> anyhow::Result<ExitCode> {
    raise_open_files()?;
    let hook = match flags.hook {
        HookFlag::TrafficControl => Hook::TrafficControl,
        HookFlag::Xdp => Hook::Generic,
        HookFlag::XdpNative => Hook::Native,
    };
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).context("no event for signals")?);
    let _watch = Signals::catch_of_daemon()?.watch({
        let stop = Arc::clone(&stop);
        move |signal| {
            if signal == signals::HANG_UP {
                tracing::info!("goes on after {}", tributary_bench::name_signal(signal));
                return;
            }
            tracing::info!("stopping after {}", tributary_bench::name_signal(signal));
            // The counter of an event that nobody reads has room.
            let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
        }
    });
    let service = Service::bind(ServiceOptions {
        address: flags.socket.clone(),
        hook,
        interfaces: flags.interface,
        per_user_max: usize::try_from(flags.per_user).expect("the option's range ends at 64"),
        socket_users: flags.af_xdp,
    })?;
    announce(&format!("the service of rings takes connections at {}", flags.socket))?;
    service.serve(&stop, &log)?;
    Ok(ExitCode::SUCCESS)
}

fn log(event: Event<'_>) {
    match event {
        Event::Opened { process, user, interface } => {
            tracing::info!("process {process} of user {user} has rings or sockets at {interface}");
        }
        Event::Closed { process } => tracing::info!("process {process} has them no more"),
        Event::Refused { process, user, reason } => {
            tracing::warn!("refused process {process} of user {user}: {reason}");
        }
    }
}
