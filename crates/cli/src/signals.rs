//! Signals that ask this process to stop: listeners for them, and their names.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

/// The signal that a terminal sends when it goes away.
pub(crate) const HANG_UP: i32 = SIGHUP;

type Listener = Box<dyn Fn(i32) + Send>;

/// A signal that reached this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caught {
    /// Its number.
    pub(crate) signal: i32,
    /// Whether the terminal sent it, to every process of the foreground at once.
    pub(crate) from_terminal: bool,
}

/// The signals that this process catches.
pub(crate) struct Signals {
    listener: Arc<Mutex<Option<Listener>>>,
}

/// Takes the listener away again when dropped.
pub(crate) struct Watch(Arc<Mutex<Option<Listener>>>);

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP. While there is no [`Watch`], such a signal ends the process
    /// as if it were not caught.
    pub(crate) fn catch() -> io::Result<Self> {
        Self::catch_and_end_by(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// The same for a daemon, which a SIGHUP never ends.
    pub(crate) fn catch_of_daemon() -> io::Result<Self> {
        Self::catch_and_end_by(&[SIGINT, SIGTERM])
    }

    fn catch_and_end_by(ending: &'static [i32]) -> io::Result<Self> {
        let listener: Arc<Mutex<Option<Listener>>> = Arc::default();
        let shared = Arc::clone(&listener);
        forward(&[SIGINT, SIGTERM, HANG_UP], move |caught| {
            match &*shared.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(listener) => listener(caught.signal),
                None if ending.contains(&caught.signal) => std::process::exit(128 + caught.signal),
                None => {}
            }
        })?;
        Ok(Self { listener })
    }

    /// Calls `listener` for every signal until the returned value is dropped.
    pub(crate) fn watch(&self, listener: impl Fn(i32) + Send + 'static) -> Watch {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
        Watch(Arc::clone(&self.listener))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Calls `listener`, on a thread of its own, for each of `signals` from now on.
pub(crate) fn forward(
    signals: &[i32],
    listener: impl Fn(Caught) + Send + 'static,
) -> io::Result<()> {
    let mut caught = SignalsInfo::<WithOrigin>::new(signals)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for origin in &mut caught {
            // A signal of the terminal comes from the kernel and names no process.
            listener(Caught { signal: origin.signal, from_terminal: origin.process.is_none() });
        }
    })?;
    Ok(())
}

/// Signals that `tributary run` passes on to its command.
pub(crate) const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
