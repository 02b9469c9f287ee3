//! Goal: nothing is served before the TLS handshake, and a slow handshake delays only its own
//! client. Method: the server over real connections of this host, with short limits; where a peer
//! on another host is needed, the connection is handed over with such a peer's address.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tributary_transport::tls;
use tributary_transport::token::Token;
use tributary_wire::control::Refusal;

use super::*;
use crate::tokens::Tokens;

/// No test takes nearly so long unless it hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

const SHORT: Limits = Limits { connections: 3, head_within: Duration::from_millis(300), ..LIMITS };

fn new_token() -> Token {
    let folder = tempfile::tempdir().unwrap();
    Token::create(&folder.path().join("token")).unwrap()
}

fn guarded(token: &Token) -> Guarded {
    guarded_by(token.clone().into())
}

fn guarded_by(tokens: Tokens) -> Guarded {
    let calls = Router::new()
        .route("/here", get(async || "it is"))
        .route("/long", get(async || "long".repeat(16 << 20)));
    let health = health::router(|| Err("it is tired"));
    Guarded::new(calls, Access::new(tokens, [])).openly(health)
}

struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(limits: Limits, token: &Token) -> Self {
        Self::serve(limits, guarded(token)).await
    }

    async fn serve(limits: Limits, calls: Guarded) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let serving = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { serve_within(limits, listener, calls, &shutdown).await }
        });
        Self { address, shutdown, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Asks for the one path, over TLS and with the right token.
    async fn ask(&self, token: &Token) -> String {
        let stream = encrypt(self.connect().await, token).await.unwrap();
        ask_over(stream, token.reveal()).await
    }

    async fn stop(self) {
        self.shutdown.request();
        self.serving.await.unwrap();
    }
}

async fn encrypt(
    stream: TcpStream,
    token: &Token,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    TlsConnector::from(tls::client_config(token)).connect(tls::server_name(token), stream).await
}

async fn ask_over(stream: impl AsyncRead + AsyncWrite + Unpin, bearer: &str) -> String {
    ask_for(stream, "/here", bearer).await
}

async fn ask_for(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    bearer: &str,
) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {bearer}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Asks for the one path, and keeps the connection.
async fn keep_asking_over<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    bearer: &str,
) -> (S, String) {
    let request =
        format!("GET /here HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"it is") {
        answer.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(answer).unwrap())
}

/// Waits for the other side to close.
async fn until_closed(mut stream: TcpStream) {
    // End of file, or a reset because of unread input: both are a close.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WATCHDOG, test).await.expect("stuck") });
}

#[test]
fn the_same_token_finds_its_server_and_another_does_not() {
    run(async {
        let (token, other) = (new_token(), new_token());
        let server = Server::start(LIMITS, &token).await;
        assert!(server.ask(&token).await.ends_with("it is"));

        let error = encrypt(server.connect().await, &other).await.unwrap_err();
        assert!(matches!(error.into(), tls::TlsError::OtherToken));

        // A server that knows the public key but not the token, as everybody does who has
        // connected.
        let stream = encrypt(server.connect().await, &token).await.unwrap();
        let answer = ask_over(stream, other.reveal()).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        server.stop().await;
    });
}

#[test]
fn a_tenant_that_floods_leaves_room_for_others() {
    run(async {
        let [operator, flood, quiet] = [new_token(), new_token(), new_token()];
        let tenants = [("flood", &flood), ("quiet", &quiet)];
        let tenants = tenants.map(|(name, token)| (name.to_owned(), vec![token.clone()]));
        let access = Access::within(operator.clone().into(), tenants, 2);
        let router = Router::new().route("/here", get(async || "it is"));
        let server = Server::serve(LIMITS, Guarded::new(router, access)).await;
        let mut open = Vec::new();
        for _ in 0..2 {
            let stream = encrypt(server.connect().await, &flood).await.unwrap();
            let (stream, answer) = keep_asking_over(stream, flood.reveal()).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            open.push(stream);
        }
        let refused = server.ask(&flood).await;
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        assert!(refused.contains("tenant `flood` has 2 connections"), "{refused}");
        for other in [&quiet, &operator] {
            assert!(server.ask(other).await.ends_with("it is"));
        }
        // A connection has one place, however much is asked over it, and gives it back.
        let (stream, answer) = keep_asking_over(open.pop().unwrap(), flood.reveal()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop(stream);
        let mut answer = server.ask(&flood).await;
        while answer.starts_with("HTTP/1.1 429 ") {
            tokio::time::sleep(Duration::from_millis(2)).await;
            answer = server.ask(&flood).await;
        }
        assert!(answer.ends_with("it is"), "{answer}");
        drop(open);
        server.stop().await;
    });
}

#[test]
fn a_certificate_without_its_key_is_not_believed() {
    run(async {
        let (token, other) = (new_token(), new_token());
        // An impostor who replays the certificate, and signs with a key of its own.
        let key = other.identity().private_key_der();
        let signer = rustls::crypto::ring::sign::any_eddsa_type(&key.into()).unwrap();
        let chain = vec![certificate::certificate(&token).der().clone()];
        let replayed = Arc::new(rustls::sign::CertifiedKey::new(chain, signer));
        let config = rustls::ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(replayed)));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream).await.map(drop)
        });
        let stream = TcpStream::connect(address).await.unwrap();
        assert!(matches!(
            encrypt(stream, &token).await.unwrap_err().into(),
            tls::TlsError::OtherToken
        ));
        assert!(accepting.await.unwrap().is_err());
    });
}

/// Of the token `0123456789abcdef0123456789abcdef`, in DER; OpenSSL reads and verifies it.
const CERTIFICATE: &str = "\
    3082012d3081e0a003020102020101300506032b6570301c311a301806035504030c116d616e61676572\
    2e7472696275746172793020170d3230303130313030303030305a180f39393939313233313030303030\
    305a301c311a301806035504030c116d616e616765722e747269627574617279302a300506032b657003\
    21008cc6ece0c6f3b7785e001b604da0107245a44976a6a786961d0161a3c824ea95a3453043301c0603\
    551d110415301382116d616e616765722e747269627574617279300e0603551d0f0101ff040403020780\
    30130603551d25040c300a06082b06010505070301300506032b65700341000118f92d1248216a827307\
    83b81eb44d69f7c76fa58fd7d43910ca9841c5693557bc0f3d5f240ad2aded18978a2c4e2756cf946de8\
    e1d986c3506235225b0d01";

/// A stored copy of a manager's certificate (for `curl --cacert`, say) must stay valid after an
/// update, also of `rcgen`.
#[test]
fn the_certificate_is_a_function_of_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (token, other) = (Token::load(&path).unwrap(), new_token());
    let certificate = |token| certificate::certificate(token).der().to_vec();
    let text: String = certificate(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, CERTIFICATE);
    assert_ne!(certificate(&token), certificate(&other));
}

#[test]
fn plain_http_works_here_and_is_refused_from_elsewhere() {
    run(async {
        let token = new_token();
        let server = Server::start(LIMITS, &token).await;
        let answer = ask_over(server.connect().await, token.reveal()).await;
        assert!(answer.ends_with("it is"), "{answer}");
        server.stop().await;

        for bearer in [token.reveal(), "wrong"] {
            let answer = from_afar(&token, bearer).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
            let refusal: Refusal = serde_json::from_str(body).unwrap();
            assert_eq!(refusal.code, RefusalCode::TlsRequired);
        }
    });
}

#[test]
fn health_is_told_to_everybody_and_nothing_else_is() {
    run(async {
        let token = new_token();
        let server = Server::start(LIMITS, &token).await;
        let ask = async |path: &str| ask_for(server.connect().await, path, "").await;
        let healthy = ask("/healthz").await;
        assert!(healthy.starts_with("HTTP/1.1 200 ") && healthy.ends_with("ok\n"), "{healthy}");
        let tired = ask("/readyz").await;
        assert!(tired.starts_with("HTTP/1.1 503 ") && tired.ends_with("tired\n"), "{tired}");
        assert!(ask("/here").await.starts_with("HTTP/1.1 401 "));
        server.stop().await;
        let healthy = asked_from_afar(&token, "/healthz", "").await;
        assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
    });
}

#[test]
fn two_tokens_are_good_while_one_is_replaced() {
    run(async {
        let [new, old, reader, stranger] = [0; 4].map(|_| new_token());
        let tokens =
            Tokens { operator: vec![new.clone(), old.clone()], readers: vec![reader.clone()] };
        let server = Server::serve(LIMITS, guarded_by(tokens)).await;
        for token in [&new, &old, &reader] {
            assert!(server.ask(token).await.ends_with("it is"));
        }
        assert!(encrypt(server.connect().await, &stranger).await.is_err());
        server.stop().await;
    });
}

#[test]
fn an_answer_that_nobody_reads_is_not_kept() {
    run(async {
        let token = new_token();
        let limits = Limits { connections: 1, unread_within: Duration::from_millis(50), ..LIMITS };
        let server = Server::start(limits, &token).await;
        let mut stream = server.connect().await;
        let bearer = token.reveal();
        let request =
            format!("GET /long HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        // There is room for one connection: the next is served when the server has given this one up.
        assert!(server.ask(&token).await.ends_with("it is"));
        drop(stream);
        server.stop().await;
    });
}

/// The answer to plain HTTP from another host.
async fn from_afar(token: &Token, bearer: &str) -> String {
    asked_from_afar(token, "/here", bearer).await
}

async fn asked_from_afar(token: &Token, path: &str, bearer: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let accepted = Accepted { stream, peer: "10.0.0.7:4711".parse().unwrap() };
    let calls = guarded(token);
    let serving = tokio::spawn(async move {
        accepted.serve(calls, LIMITS, &Shutdown::new()).await;
    });
    let answer = ask_for(client, path, bearer).await;
    serving.await.unwrap();
    answer
}

/// The first bytes of a handshake that never continues.
const HALF_A_HANDSHAKE: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

#[test]
fn silence_garbage_and_half_a_handshake_end_with_the_limit() {
    run(async {
        let token = new_token();
        let server = Server::start(SHORT, &token).await;
        // A record of a length that never comes, no record at all, and bytes that are no HTTP.
        let openings: [&[u8]; 4] =
            [b"", HALF_A_HANDSHAKE, b"GET / HTTP/1.1\r\nHost", b"\x16\xff\xff\xff\xff\xff\xff"];
        for opening in openings {
            let mut stream = server.connect().await;
            stream.write_all(opening).await.unwrap();
            until_closed(stream).await;
        }
        assert!(server.ask(&token).await.ends_with("it is"));
        server.stop().await;
    });
}

/// Limits that no test reaches.
const PATIENT: Limits = Limits { head_within: Duration::from_secs(3600), ..SHORT };

async fn half_a_handshake(server: &Server) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(HALF_A_HANDSHAKE).await.unwrap();
    stream
}

#[test]
fn a_handshake_counts_as_a_connection() {
    run(async {
        let token = new_token();
        let server = Server::start(PATIENT, &token).await;
        let mut held = Vec::new();
        for _ in 0..PATIENT.connections {
            held.push(half_a_handshake(&server).await);
        }
        {
            let mut asking = std::pin::pin!(server.ask(&token));
            let early = tokio::time::timeout(Duration::from_millis(300), asking.as_mut()).await;
            assert!(early.is_err(), "one more than there is room for was served");
            drop(held.pop());
            assert!(asking.await.ends_with("it is"));
        }
        server.stop().await;
    });
}

#[test]
fn slow_handshakes_hold_up_nobody_and_not_the_end() {
    run(async {
        let token = new_token();
        let server = Server::start(Limits { connections: 100, ..PATIENT }, &token).await;
        let mut held = Vec::new();
        for at in 0..64 {
            let mut stream = server.connect().await;
            stream.write_all(&HALF_A_HANDSHAKE[..at % HALF_A_HANDSHAKE.len()]).await.unwrap();
            held.push(stream);
        }
        assert!(server.ask(&token).await.ends_with("it is"));
        server.stop().await;
    });
}
