//! The host library's conversation with the manager: a few blocking HTTP calls over TLS.

mod connection;
mod encrypted;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use encrypted::Encrypting;
use tributary_transport::tls::TlsError;
use tributary_transport::token::Token;
use tributary_wire::control::{
    DrainRequest, Drained, GroupGrant, GroupRequest, JobAdmission, JobRequest, PageCode, Refusal,
    RefusalCode, Status,
};
use ureq::unversioned::resolver::DefaultResolver;

/// How long a connection to the manager may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the manager may take for an answer: it waits for aggregation nodes itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest line the manager sends when it admits a job.
const ADMISSION_BYTES_MAX: u64 = 4096;

/// Why the manager gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// It can't be asked without a token.
    #[error("a manager is named but no token: set TRIBUTARY_TOKEN_FILE")]
    NoToken,
    /// The token can't be used.
    #[error("{problem}")]
    BadToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the file once more.
        problem: String,
    },
    /// It does not answer.
    #[error("manager {address} does not answer: {problem}")]
    Silent {
        /// Where it was looked for.
        address: String,
        /// What the system says.
        problem: String,
    },
    /// It can't be trusted: it has another token, or does not speak TLS.
    #[error("manager {address}: {problem}")]
    NotTrusted {
        /// Where it was asked.
        address: String,
        /// What is wrong.
        problem: String,
    },
    /// It answers something else than it should.
    #[error("manager {address} answers {status} with what is no answer of this version")]
    Garbled {
        /// Where it was asked.
        address: String,
        /// The HTTP status.
        status: u16,
    },
    /// It said no.
    #[error("the manager refuses: {}", .0.message)]
    Refused(Refusal),
}

impl ManagerError {
    /// Whether the same question may be answered otherwise a little later, with nothing changed but the manager or its
    /// aggregators.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoToken | Self::BadToken { .. } | Self::NotTrusted { .. } => false,
            Self::Silent { .. } | Self::Garbled { .. } => true,
            Self::Refused(refusal) => matches!(
                refusal.code,
                RefusalCode::NoTree
                    | RefusalCode::NodeExhausted
                    | RefusalCode::NodeSilent
                    | RefusalCode::NameTaken
            ),
        }
    }
}

/// A client of the manager's control interface.
#[derive(Clone)]
pub struct ManagerClient {
    address: String,
    authorization: String,
    agent: ureq::Agent,
}

/// A job's place at the manager: it lasts as long as this value, or the process, does.
pub struct Lease {
    /// What was admitted.
    pub admission: JobAdmission,
    // The open connection is the lease; the kernel closes it however the process ends, and forked workers have no copy.
    _connection: BufReader<Box<dyn Read + Send + Sync>>,
}

impl ManagerClient {
    /// Reads the token; connects to nothing yet.
    ///
    /// # Errors
    /// If there is no token file, or it can't be used.
    pub fn new(address: &str, token_file: Option<&Path>) -> Result<Self, ManagerError> {
        let path = token_file.ok_or(ManagerError::NoToken)?;
        let token = Token::load(path).map_err(|error| ManagerError::BadToken {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Self::with_token(address, &token))
    }

    /// With a token at hand; connects to nothing yet.
    pub(crate) fn with_token(address: &str, token: &Token) -> Self {
        let config = ureq::Agent::config_builder()
            // What proxies the environment names are for the web, not for a manager.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .http_status_as_error(false)
            .build();
        let connector = Encrypting::new(token, ANSWER_TIMEOUT);
        Self {
            address: address.to_owned(),
            authorization: format!("Bearer {}", token.reveal()),
            agent: ureq::Agent::with_parts(config, connector, DefaultResolver::default()),
        }
    }

    /// Asks for a job's admission.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn admit(&self, request: &JobRequest) -> Result<Lease, ManagerError> {
        let response = self.post("/v1/jobs", request)?;
        let status = response.status().as_u16();
        let reader: Box<dyn Read + Send + Sync> = Box::new(response.into_body().into_reader());
        let mut connection = BufReader::new(reader);
        let mut line = String::new();
        (&mut connection)
            .take(ADMISSION_BYTES_MAX)
            .read_line(&mut line)
            .map_err(|error| self.explain_silence(&error))?;
        let admission = serde_json::from_str(&line).map_err(|_| self.garbled_reply(status))?;
        Ok(Lease { admission, _connection: connection })
    }

    /// Asks for a group.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn request_group(
        &self,
        admission: &JobAdmission,
        request: &GroupRequest,
    ) -> Result<GroupGrant, ManagerError> {
        let mut response = self.post(&format!("/v1/jobs/{}/groups", admission.job), request)?;
        let status = response.status().as_u16();
        response.body_mut().read_json().map_err(|_| self.garbled_reply(status))
    }

    /// Has an aggregator's groups moved away, because it is about to be stopped.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn drain(&self, request: &DrainRequest) -> Result<Drained, ManagerError> {
        let mut response = self.post("/v1/drain", request)?;
        let status = response.status().as_u16();
        response.body_mut().read_json().map_err(|_| self.garbled_reply(status))
    }

    /// Asks for a code that lets one browser see the manager's page.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn page_code(&self) -> Result<PageCode, ManagerError> {
        let mut response = self.post("/v1/page/codes", &())?;
        let status = response.status().as_u16();
        response.body_mut().read_json().map_err(|_| self.garbled_reply(status))
    }

    /// Asks for the fabric's state.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn status(&self) -> Result<Status, ManagerError> {
        let mut response = self.get("/v1/status")?;
        let status = response.status().as_u16();
        response.body_mut().read_json().map_err(|_| self.garbled_reply(status))
    }

    /// Asks for measurements of the site: the text of a tuning file.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub fn tuning(&self) -> Result<String, ManagerError> {
        let mut response = self.get("/v1/tuning")?;
        let status = response.status().as_u16();
        response.body_mut().read_to_string().map_err(|_| self.garbled_reply(status))
    }

    fn get(&self, path: &str) -> Result<ureq::http::Response<ureq::Body>, ManagerError> {
        let response = self
            .agent
            .get(format!("https://{}{path}", self.address))
            .header("authorization", &self.authorization)
            .call()
            .map_err(|error| self.explain_no_answer(&error))?;
        self.accept(response)
    }

    fn post(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<ureq::http::Response<ureq::Body>, ManagerError> {
        let response = self
            .agent
            .post(format!("https://{}{path}", self.address))
            .header("authorization", &self.authorization)
            .send_json(body)
            .map_err(|error| self.explain_no_answer(&error))?;
        self.accept(response)
    }

    fn accept(
        &self,
        mut response: ureq::http::Response<ureq::Body>,
    ) -> Result<ureq::http::Response<ureq::Body>, ManagerError> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let refusal = response.body_mut().read_json().map_err(|_| self.garbled_reply(status))?;
        Err(ManagerError::Refused(refusal))
    }

    fn explain_no_answer(&self, error: &ureq::Error) -> ManagerError {
        match error {
            ureq::Error::Other(cause) if cause.is::<TlsError>() => ManagerError::NotTrusted {
                address: self.address.clone(),
                problem: cause.to_string(),
            },
            other => self.explain_silence(other),
        }
    }

    fn explain_silence(&self, error: &dyn std::fmt::Display) -> ManagerError {
        ManagerError::Silent { address: self.address.clone(), problem: error.to_string() }
    }

    fn garbled_reply(&self, status: u16) -> ManagerError {
        ManagerError::Garbled { address: self.address.clone(), status }
    }
}
