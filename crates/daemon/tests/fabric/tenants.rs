//! Several tokens at one manager: what a tenant may call, see and hold.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use tempfile::TempDir;
use tributary_client::manager::ManagerClient;
use tributary_daemon::manager::{Tenant, load_tenants};
use tributary_daemon::tokens::Tokens;
use tributary_transport::token::Token;
use tributary_wire::Capability;
use tributary_wire::control::{JobPlace, Refusal, RefusalCode, Status};

use crate::common::*;
use crate::recovery::{RunningManager, nodes, start_node};

/// A manager with tenants `one`, who may hold 10 outstanding operations on an aggregator, and `two`; and an aggregator.
struct Site {
    folder: TempDir,
    operator: Token,
    manager: RunningManager,
}

const TENANTS: &str = "\
[one]
token_file = \"one.token\"
osos = 10

[two]
token_file = \"two.token\"
jobs = 1
";

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| Token::create(&folder.path().join(name)).unwrap();
        let [operator, ..] = ["operator.token", "one.token", "two.token"].map(create);
        std::fs::write(folder.path().join("tenants.toml"), TENANTS).unwrap();
        let tenants = tenants(&folder, &operator);
        let manager =
            RunningManager::with_tenants((Ipv4Addr::LOCALHOST, 0).into(), &operator, tenants);
        Self { folder, operator, manager }
    }

    fn token_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.token"))
    }

    fn token(&self, name: &str) -> String {
        token(&self.token_file(name))
    }

    fn call(&self, name: &str, method: &str, path: &str) -> Answer {
        call(self.manager.address, Some(&self.token(name)), method, path, "")
    }

    fn status(&self, name: &str) -> Status {
        self.call(name, "GET", "/v1/status").json()
    }

    fn admit(&self, name: &str) -> Job {
        Job::admit_at(self.manager.address, &self.token(name))
    }
}

fn tenants(folder: &TempDir, operator: &Token) -> Vec<Tenant> {
    load_tenants(&folder.path().join("tenants.toml"), &operator.clone().into()).unwrap()
}

#[test]
fn the_operators_calls_are_not_for_tenants() {
    guarded(|| {
        let site = Site::start();
        let calls = [
            ("POST", "/v1/nodes"),
            ("POST", "/v1/nodes/0/events"),
            ("POST", "/v1/nodes/0/waits"),
            ("POST", "/v1/nodes/0/counts"),
            ("POST", "/v1/drain"),
            ("POST", "/v1/page/codes"),
            ("GET", "/metrics"),
        ];
        for (method, path) in calls {
            let answer = site.call("one", method, path);
            assert_eq!(
                (answer.status, answer.json::<Refusal>().code),
                (403, RefusalCode::Forbidden)
            );
            assert!(answer.body.contains("needs the operator's token"), "{}", answer.body);
            assert_ne!(site.call("operator", method, path).status, 403, "{method} {path}");
        }
        // Whether there is a path is not a secret, and asking for it no right.
        assert_eq!(site.call("one", "GET", "/nowhere").status, 404);
        assert_eq!(site.call("one", "GET", "/").status, 401, "the page is the operator's");
    });
}

#[test]
fn a_reader_sees_everything_and_changes_nothing() {
    guarded(|| {
        let Site { folder, operator, manager } = Site::start();
        let address = manager.stop();
        let reader = Token::create(&folder.path().join("reader.token")).unwrap();
        let tokens = Tokens { operator: vec![operator.clone()], readers: vec![reader.clone()] };
        let tenants = tenants(&folder, &operator);
        let manager = RunningManager::with_tokens(address, tokens, tenants);
        let site = Site { folder, operator, manager };
        let job = site.admit("one");
        assert_eq!(site.status("reader").jobs[0].job, job.admission.job);
        assert_eq!(site.status("reader").tenants.len(), 2);
        for (method, path) in [("GET", "/metrics"), ("POST", "/v1/page/codes")] {
            assert_eq!(site.call("reader", method, path).status, 200, "{method} {path}");
        }
        let groups = format!("/v1/jobs/{}/groups", job.admission.job);
        let changing =
            ["/v1/nodes", "/v1/nodes/0/events", "/v1/drain", "/v1/jobs", groups.as_str()];
        for path in changing {
            let answer = site.call("reader", "POST", path);
            assert_eq!(answer.status, 403, "{path}: {}", answer.body);
            assert!(answer.body.contains("and this is a reader's"), "{}", answer.body);
        }
    });
}

/// Parts of bodies whose rest never comes: each is given up after some time, and together they are bounded.
#[test]
fn a_tenants_unfinished_bodies_are_few_and_end() {
    guarded(|| {
        let site = Site::start();
        let token = site.token("one");
        let open = || {
            let mut stream = TcpStream::connect(site.manager.address).unwrap();
            let head = format!(
                "POST /v1/jobs HTTP/1.1\r\nHost: manager\r\nAuthorization: Bearer {token}\r\n\
                 Content-Length: 4194304\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            // The manager may have refused and closed meanwhile.
            let _ = stream.write_all(&[b' '; 3 << 20]);
            stream
        };
        let mut unfinished: Vec<TcpStream> = (0..20).map(|_| open()).collect();
        let (mut too_many, mut too_slow) = (0, 0);
        for stream in &mut unfinished {
            let mut answer = [0; 4096];
            // A refusal may be lost to a reset, because more was sent than the manager read.
            let length = stream.read(&mut answer).unwrap_or(0);
            let answer = String::from_utf8_lossy(&answer[..length]);
            too_many += u32::from(answer.starts_with("HTTP/1.1 429 ") || length == 0);
            too_slow += u32::from(answer.contains("did not come within"));
        }
        assert_eq!(too_many + too_slow, 20);
        assert!(too_slow <= 10 && too_many >= 10, "{too_many} {too_slow}");
        drop(unfinished);
        // There is room again, and others never lacked it.
        drop((site.admit("one"), site.admit("two")));
    });
}

#[test]
fn every_token_finds_the_manager_by_its_own_certificate() {
    guarded(|| {
        let site = Site::start();
        let address = site.manager.address.to_string();
        for name in ["operator", "one", "two"] {
            let client = ManagerClient::new(&address, Some(&site.token_file(name))).unwrap();
            let expected = if name == "operator" { 2 } else { 1 };
            assert_eq!(client.status().unwrap().tenants.len(), expected, "{name}");
        }
        let stranger = site.token_file("stranger");
        Token::create(&stranger).unwrap();
        let client = ManagerClient::new(&address, Some(&stranger)).unwrap();
        let error = client.status().unwrap_err().to_string();
        assert!(error.contains("another token"), "{error}");
    });
}

#[test]
fn tenants_run_beside_each_other_within_their_limits() {
    guarded(|| {
        let site = Site::start();
        let address = site.manager.address;
        let node = start_node("only", address, &site.operator, site.folder.path());
        eventually("the node is there", || nodes(address, &site.operator) == 1);
        let hosts = ["a".to_owned(), "b".to_owned()];
        let (one, two) = (site.admit("one"), site.admit("two"));
        let mut ours = members(&one.group(&hosts, 8, 1024), Way::Tcp);
        let mut theirs = members(&two.group(&hosts, 16, 1024), Way::Tcp);
        sum_once(&mut ours, 1.0);
        sum_once(&mut theirs, 2.0);

        let refusal = one.refusal(&hosts, 3, 1024);
        assert_eq!(refusal.code, RefusalCode::LimitReached);
        let told =
            format!("of which it may hold 10 and has 2 left (held by job {}", one.admission.job);
        assert!(refusal.message.contains(&told), "{}", refusal.message);
        let body = r#"{"name":"more","processes":1}"#;
        let answer = call(address, Some(&site.token("two")), "POST", "/v1/jobs", body);
        assert_eq!(answer.status, 429);
        assert!(answer.body.contains("tenant `two` has 1 jobs already"), "{}", answer.body);

        for (name, job) in [("one", &one), ("two", &two)] {
            let seen = site.status(name);
            assert_eq!(seen.jobs.iter().map(|it| it.job).collect::<Vec<_>>(), [job.admission.job]);
            assert_eq!(seen.groups.len(), 1);
        }
        assert_eq!(site.status("operator").groups.len(), 2);

        // Another tenant's job is no place to come back to, also where its secret were known.
        let place = JobPlace { job: one.admission.job, secret: one.admission.secret };
        let body =
            serde_json::json!({"name": "theft", "processes": 1, "resume": place}).to_string();
        let answer = call(address, Some(&site.token("two")), "POST", "/v1/jobs", &body);
        assert_eq!(answer.json::<Refusal>().code, RefusalCode::Forbidden);
        let stolen = one.request_with_token(&site.token("two"), &hosts);
        assert_eq!((stolen.status, stolen.json::<Refusal>().code), (403, RefusalCode::Forbidden));

        // The next manager knows whose groups it takes over.
        let Site { folder, operator, manager } = site;
        manager.stop();
        let manager = RunningManager::with_tenants(address, &operator, tenants(&folder, &operator));
        let site = Site { folder, operator, manager };
        // Also before the aggregator has told the new manager of that job, and with a secret of one's own.
        for secret in [place.secret, two.admission.secret, Capability::default()] {
            let place = JobPlace { secret, ..place };
            let body =
                serde_json::json!({"name": "squat", "processes": 1, "resume": place}).to_string();
            let answer = call(address, Some(&site.token("two")), "POST", "/v1/jobs", &body);
            assert_eq!(answer.json::<Refusal>().code, RefusalCode::Forbidden);
        }
        eventually("the groups are back", || site.status("operator").groups.len() == 2);
        sum_once(&mut ours, 3.0);
        assert_eq!(site.status("one").groups.len(), 1);
        assert_eq!(site.status("one").tenants[0].osos.used, 8);
        let resumed = Job::resume_at(address, &site.token("one"), place);
        assert_eq!(resumed.refusal(&hosts, 3, 1024).code, RefusalCode::LimitReached);
        drop((one, two, resumed));
        node.0.request();
        node.1.join().unwrap();
    });
}
