//! Several tokens at one manager: what a tenant may call, see and hold.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use tempfile::TempDir;
use tributary_client::manager::ManagerClient;
use tributary_daemon::manager::{Tenant, load_tenants};
use tributary_transport::token::Token;
use tributary_wire::control::{JobPlace, Refusal, RefusalCode, Status};

use crate::common::*;
use crate::recovery::{RunningManager, nodes, start_node};

/// A manager with tenants `one`, who may hold 10 outstanding operations on a node, and `two`; and a node.
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
    load_tenants(&folder.path().join("tenants.toml"), operator).unwrap()
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

        // The next manager knows whose groups it takes over.
        let Site { folder, operator, manager } = site;
        manager.stop();
        let manager = RunningManager::with_tenants(address, &operator, tenants(&folder, &operator));
        let site = Site { folder, operator, manager };
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
