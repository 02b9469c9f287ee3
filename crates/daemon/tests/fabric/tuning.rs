//! Measurements of the site that a manager serves.

use tributary_client::manager::ManagerClient;
use tributary_transport::token::Token;
use tributary_wire::control::{JobAdmission, JobRequest};

use crate::common::*;
use crate::recovery::RunningManager;

const TUNING: &str = "machine = \"a site\"\n";

#[test]
fn jobs_and_nobody_else_get_the_measurements_that_a_manager_serves() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    let token = Token::create(&token_file).unwrap();
    for tuning in [None, Some(TUNING)] {
        let manager = RunningManager::serving(&token, tuning);
        let address = manager.address;
        let client = ManagerClient::new(&address.to_string(), Some(&token_file)).unwrap();
        let request = JobRequest { name: "job".to_owned(), processes: 1, resume: None };
        let lease = client.admit(&request).unwrap();
        assert_eq!(lease.admission.has_tuning, tuning.is_some());
        assert_eq!(client.tuning().unwrap(), tuning.unwrap_or_default());
        assert_eq!(call(address, None, "GET", "/v1/tuning", "").status, 401);
        drop(lease);
        manager.stop();
    }
}

/// A client of before, which knows nothing of measurements, and a manager of before, which serves none.
#[test]
fn admissions_of_older_builds_are_read() {
    let old = r#"{"job":1,"secret":"000102030405060708090a0b0c0d0e0f"}"#;
    let admission: JobAdmission = serde_json::from_str(old).unwrap();
    assert!(!admission.has_tuning);
    assert_eq!(serde_json::to_string(&admission).unwrap(), old);
}
