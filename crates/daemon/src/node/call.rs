//! HTTP calls to the manager, over one kept connection.
//!
//! On tokio rather than a blocking client, because an endless stream of orders has to be read with
//! a deadline per line and left at once when the node stops.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tributary_wire::control::Refusal;

use crate::liveness::{SILENCE_MAX, watch_host};
use tributary_transport::token::Token;

/// Longest refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Why a call to the manager came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("manager {address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    #[error("manager {address} did not answer within {SILENCE_MAX:?}")]
    Silent { address: String },
    #[error("manager {address} broke off: {source}")]
    BrokenOff { address: String, source: hyper::Error },
    #[error("manager {address} refuses: {}", refusal.message)]
    Refused { address: String, refusal: Refusal },
    #[error("manager {address} answers {status} with what is no refusal of this version")]
    Garbled { address: String, status: StatusCode },
}

/// The way to a manager.
pub(super) struct Caller {
    address: String,
    authorization: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Caller {
    /// Connects to nothing yet.
    pub(super) fn new(address: &str, token: &Token) -> Self {
        Self {
            address: address.to_owned(),
            authorization: format!("Bearer {}", token.reveal()),
            connection: None,
        }
    }

    /// Posts `body` to `path`, and returns a successful answer with its body still to be read.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>, CallError> {
        let answer = timeout(SILENCE_MAX, self.exchange(path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(CallError::Silent { address: self.address() }));
        if answer.is_err() {
            self.connection = None;
        }
        let response = answer?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refusal(response).await)
        }
    }

    async fn exchange(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>, CallError> {
        let text = serde_json::to_vec(body).expect("a control message has a JSON form");
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(text)))
            .expect("path, address and token are valid in a request");
        let mut sender = match self.kept().await {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let sent = sender.send_request(request).await;
        let response =
            sent.map_err(|source| CallError::BrokenOff { address: self.address(), source })?;
        self.connection = Some(sender);
        Ok(response)
    }

    /// The kept connection, unless it has been closed in the meantime.
    async fn kept(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut kept = self.connection.take()?;
        kept.ready().await.ok()?;
        Some(kept)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let unreachable = |source| CallError::Unreachable { address: self.address(), source };
        let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        watch_host(&stream).map_err(|errno| unreachable(errno.into()))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|source| CallError::BrokenOff { address: self.address(), source })?;
        // Ends when the sender and every body read from it are dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn refusal(&self, response: Response<Incoming>) -> CallError {
        let status = response.status();
        let body =
            timeout(SILENCE_MAX, Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect());
        let refusal = match body.await {
            Ok(Ok(body)) => serde_json::from_slice(&body.to_bytes()).ok(),
            _ => None,
        };
        match refusal {
            Some(refusal) => CallError::Refused { address: self.address(), refusal },
            None => CallError::Garbled { address: self.address(), status },
        }
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}
