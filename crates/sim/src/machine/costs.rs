//! What system calls cost: a preset's constants, ready to add.

use super::MachineError;
use crate::engine::Picos;
use crate::preset::{Constant, Nanoseconds, NsPerByte, Preset};

/// A cost that grows with length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    fixed: Picos,
    byte_ns: f64,
}

impl Linear {
    fn new(fixed: &Constant<Nanoseconds>, byte: &Constant<NsPerByte>) -> Self {
        Self { fixed: fixed.span(), byte_ns: byte.value() }
    }

    pub(super) fn of(&self, bytes: u32) -> Picos {
        self.fixed + Picos::from_ns(self.byte_ns * f64::from(bytes))
    }
}

/// The system calls of one machine.
#[derive(Clone, Debug)]
pub(super) struct SystemCosts {
    pub(super) cores: usize,
    pub(super) send: Linear,
    pub(super) receive: Linear,
    pub(super) miss: Picos,
    pub(super) remote: Picos,
    pub(super) give_way: Picos,
    pub(super) switch: Picos,
    pub(super) cold: Picos,
    pub(super) crowd: Picos,
    pub(super) wait: Picos,
    pub(super) wake: Picos,
    pub(super) wake_idle: Picos,
    pub(super) frame: Picos,
    /// Each byte that is folded.
    pub(super) reduce_byte_ns: f64,
    pub(super) jitter: f64,
}

impl SystemCosts {
    pub(super) fn new(preset: &Preset) -> Result<Self, MachineError> {
        let Some(machine) = &preset.machine else {
            return Err(MachineError::NoMachine(preset.name.clone()));
        };
        let cores = machine.cores.count() as usize;
        if cores == 0 {
            return Err(MachineError::NoCore(preset.name.clone()));
        }
        Ok(Self {
            cores,
            send: Linear::new(&machine.send, &machine.send_byte),
            receive: Linear::new(&machine.receive, &machine.receive_byte),
            miss: machine.miss.span(),
            remote: machine.remote.span(),
            give_way: machine.give_way.span(),
            switch: machine.switch.span(),
            cold: machine.cold.span(),
            crowd: machine.crowd.span(),
            wait: machine.wait.span(),
            wake: machine.wake.span(),
            wake_idle: machine.wake_idle.span(),
            frame: machine.frame.span(),
            reduce_byte_ns: preset.memory.reduce.value(),
            jitter: preset.noise.jitter.value(),
        })
    }

    /// What the first frame after a switch pays for caches that so many others have used.
    pub(super) fn warming(&self, others: usize) -> Picos {
        match others {
            0 => Picos::ZERO,
            _ => Picos(self.cold.0 + self.crowd.0 * (others as u64 - 1)),
        }
    }

    pub(super) fn reduce(&self, bytes: u32) -> Picos {
        Picos::from_ns(self.reduce_byte_ns * f64::from(bytes))
    }
}
