//! TLS over the connection to the manager, as the HTTP client wants it.
//!
//! Owns the step from an open TCP connection to one that the manager has proved to be its end of.
//! The HTTP client's own way to TLS checks chains of certificates against names, where one key is
//! expected here, whatever address it is found at.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tributary_transport::tls::{TlsError, client_config, server_name};
use tributary_transport::token::Token;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::connection::Connection;

/// Connects, and encrypts.
pub(super) struct Encrypting {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    timeout: Duration,
}

impl Encrypting {
    /// For servers that hold `token`; a handshake may take `timeout`.
    pub(super) fn new(token: &Token, timeout: Duration) -> Self {
        Self { config: client_config(token), server_name: server_name(token), timeout }
    }
}

impl Connector for Encrypting {
    type Out = Encrypted;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Encrypted>, ureq::Error> {
        let untrusted = |error: TlsError| ureq::Error::Other(Box::new(error));
        let mut session = ClientConnection::new(Arc::clone(&self.config), self.server_name.clone())
            .map_err(|error| untrusted(error.into()))?;
        let mut below = Connection::to(&details.addrs, details.timeout)?;
        // The kernel answers a connection attempt, but a handshake needs the manager itself, which
        // may wait for a core as it may before an answer.
        let mut timeout = details.timeout;
        timeout.after = self.timeout.into();
        below.set_timeout(timeout);
        session.complete_io(&mut below).map_err(|error| match error.downcast::<ureq::Error>() {
            Ok(error) => error,
            Err(error) => untrusted(error.into()),
        })?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Encrypted { buffers, stream: StreamOwned::new(session, below) }))
    }
}

/// A connection to a manager that holds the same token.
pub(super) struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, Connection>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(
        &mut self,
        len_bytes: usize,
        timeout: NextTimeout,
    ) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..len_bytes])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let got_bytes = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(got_bytes);
        Ok(got_bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encrypting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypting")
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}
