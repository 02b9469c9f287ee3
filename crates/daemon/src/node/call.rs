//! HTTP calls to the manager over TLS, on one persistent connection.
//!
//! Uses tokio instead of a blocking client, because the stream of orders never ends: it is read
//! with a deadline per line, and dropped at once when the aggregator stops.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tributary_wire::control::Refusal;

use crate::liveness::{MANAGER_SILENCE_MAX, watch_host};
use tributary_transport::tls::{self, TlsError};
use tributary_transport::token::Token;

/// Longest refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Why a call to the manager failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("manager {address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    #[error("manager {address}: {source}")]
    NotTrusted { address: String, source: TlsError },
    #[error("manager {address} did not answer within {MANAGER_SILENCE_MAX:?}")]
    Silent { address: String },
    #[error("manager {address} broke off: {source}")]
    BrokenOff { address: String, source: hyper::Error },
    #[error("manager {address} refuses: {}", refusal.message)]
    Refused { address: String, refusal: Refusal },
    #[error("manager {address} answers {status} without a readable refusal")]
    Garbled { address: String, status: StatusCode },
}

/// A client of one manager.
pub(super) struct Caller {
    address: String,
    authorization: String,
    tls: TlsConnector,
    server_name: ServerName<'static>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Caller {
    /// A client that has not connected yet.
    pub(super) fn new(address: &str, token: &Token) -> Self {
        Self {
            address: address.to_owned(),
            authorization: format!("Bearer {}", token.reveal()),
            tls: tls::client_config(token).into(),
            server_name: tls::server_name(token),
            connection: None,
        }
    }

    /// Posts `body` to `path`, and returns a successful answer with its body still to be read.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>, CallError> {
        let answer = timeout(MANAGER_SILENCE_MAX, self.exchange(path, body)).await;
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
        let mut sender = match self.take_connection().await {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let sent = sender.send_request(request).await;
        let response =
            sent.map_err(|source| CallError::BrokenOff { address: self.address(), source })?;
        self.connection = Some(sender);
        Ok(response)
    }

    /// The persistent connection, unless it has been closed in the meantime.
    async fn take_connection(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut kept = self.connection.take()?;
        kept.ready().await.ok()?;
        Some(kept)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let unreachable = |source| CallError::Unreachable { address: self.address(), source };
        let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        watch_host(&stream)
            .map_err(|error| unreachable(std::io::Error::from_raw_os_error(error.code())))?;
        let stream = self.tls.connect(self.server_name.clone(), stream).await.map_err(|error| {
            CallError::NotTrusted { address: self.address(), source: error.into() }
        })?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|source| CallError::BrokenOff { address: self.address(), source })?;
        // Ends when the sender and every body read from it are dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn refusal(&self, response: Response<Incoming>) -> CallError {
        let status = response.status();
        let body = timeout(
            MANAGER_SILENCE_MAX,
            Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect(),
        );
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http::access::Access;
    use crate::http::{Guarded, serve};
    use crate::shutdown::Shutdown;

    const WATCHDOG: Duration = Duration::from_secs(60);

    fn new_token() -> Token {
        let folder = tempfile::tempdir().unwrap();
        Token::create(&folder.path().join("token")).unwrap()
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(WATCHDOG, test).await.expect("stuck") });
    }

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[test]
    fn a_manager_of_the_same_token_answers_and_one_of_another_is_named() {
        run(async {
            let (listener, address) = listener().await;
            let token = new_token();
            let router = Router::new().route("/there", post(async || "{}"));
            let calls = Guarded::new(router, Access::new(token.clone().into(), []));
            let serving =
                tokio::spawn(async move { serve(listener, calls, &Shutdown::new()).await });
            let mut caller = Caller::new(&address, &token);
            for _ in 0..2 {
                let answer = caller.post("/there", &1).await.unwrap();
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "{}");
            }
            let error = Caller::new(&address, &new_token()).post("/there", &1).await.unwrap_err();
            assert!(
                matches!(&error, CallError::NotTrusted { source: TlsError::OtherToken, .. }),
                "{error}"
            );
            assert!(error.to_string().contains("another token"), "{error}");
            serving.abort();
        });
    }

    /// What a manager without TLS answers to a handshake, in HTTP; and one that says nothing.
    #[test]
    fn a_manager_without_tls_is_named() {
        run(async {
            for (answer, expected) in
                [("HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS"), ("", "closed")]
            {
                let (listener, address) = listener().await;
                let serving = tokio::spawn(async move {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let got_bytes = stream.read(&mut [0; 4096]).await.unwrap();
                    assert_ne!(got_bytes, 0);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
                let error =
                    Caller::new(&address, &new_token()).post("/there", &1).await.unwrap_err();
                assert!(matches!(error, CallError::NotTrusted { .. }), "{error}");
                assert!(error.to_string().contains(expected), "{error}");
                serving.await.unwrap();
            }
        });
    }
}
