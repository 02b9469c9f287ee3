//! Tenants beside each other.

use super::*;
use crate::TenantLimits;
use tributary_wire::control::{HeldGroup, JobPlace, NodeOffer, RefusalCode, Share};
use tributary_wire::{Capability, Epoch, JobId};

const ACROSS: [&str; 2] = ["h0", "h4"];

fn tenant(name: &str) -> Caller {
    Caller::Tenant(name.into())
}

/// Two leaves below a root, each with 32 outstanding operations; `one` has limits, `two` has none.
fn site(one: TenantLimits) -> Site {
    Site::new(config(one), 2, 8, 32)
}

fn config(one: TenantLimits) -> ManagerConfig {
    let tenants = [("one".into(), one), ("two".into(), TenantLimits::default())];
    ManagerConfig { tenants: tenants.into(), ..ManagerConfig::default() }
}

#[test]
fn a_tenant_has_no_more_jobs_than_it_may() {
    let mut site = site(TenantLimits { jobs: Some(2), ..TenantLimits::default() });
    let first = site.job_of(&tenant("one")).unwrap();
    site.job_of(&tenant("one")).unwrap();
    let refused = site.job_of(&tenant("one")).unwrap_err();
    assert_eq!(refused, AdmitError::TenantLimit { tenant: "one".into(), max: 2 });
    site.job_of(&tenant("two")).unwrap();
    site.job();
    site.manager.handle_lease_closed(first.job);
    site.job_of(&tenant("one")).unwrap();
}

#[test]
fn a_refusal_names_what_is_lacking_who_holds_it_and_what_frees_it() {
    let mut site =
        site(TenantLimits { osos: Some(12), groups: Some(3), ..TenantLimits::default() });
    let (one, two) = (tenant("one"), tenant("two"));
    let (a, b) = (site.job_of(&one).unwrap(), site.job_of(&one).unwrap());
    let other = site.job_of(&two).unwrap();
    site.grant(&other, &ACROSS, 10);
    let first = site.grant(&a, &ACROSS, 8);
    let refused = site.request(&b, &ACROSS, 5).unwrap_err();
    assert_eq!(refused.code(), RefusalCode::LimitReached);
    assert_eq!(
        refused.to_string(),
        "tenant `one` needs 5 of its outstanding operations on aggregation node `root`, of which it may hold 12 and \
         has 4 left (held by job 0 `job` (8)); they come free when a communicator of such a job is freed, or the job \
         ends"
    );
    // Elsewhere there is room; and what is lacking at all is told without naming others' jobs.
    site.grant(&b, &["h4", "h5"], 3);
    site.grant(&b, &["h5"], 1);
    let refused = site.request(&b, &["h4"], 1).unwrap_err();
    assert!(
        refused.to_string().contains("needs 1 of its groups, of which it may hold 3"),
        "{refused}"
    );
    assert!(refused.to_string().contains("job 1 `job` (2), job 0 `job` (1)"), "{refused}");
    let refused = site.request(&other, &ACROSS, 15).unwrap_err();
    let has = "needs 15 outstanding operations for this group, has 14 free";
    assert!(refused.to_string().contains(has), "{refused}");
    assert!(
        refused.to_string().contains("held by job 2 `job` (10), other tenants (8)"),
        "{refused}"
    );
    // The remedy that was named.
    let GroupGrant { group, epoch, .. } = first;
    site.report(site.node["root"], NodeEvent::Ended { group, epoch });
    site.grant(&b, &ACROSS, 5);
}

#[test]
fn tenants_see_their_own_alone() {
    let mut site = site(TenantLimits { osos: Some(12), ..TenantLimits::default() });
    let (one, two) = (tenant("one"), tenant("two"));
    for owner in [&one, &two, &Caller::Operator] {
        let job = site.job_of(owner).unwrap();
        site.grant(&job, &ACROSS, 2);
        site.grant(&job, &["h0"], 1);
    }
    let counts = |caller: &Caller| {
        let status = site.manager.visible_status(site.now, caller);
        (status.nodes.len(), status.jobs.len(), status.groups.len(), status.tenants.len())
    };
    assert_eq!(counts(&Caller::Operator), (3, 3, 6, 2));
    assert_eq!(counts(&one), (3, 1, 2, 1));
    assert_eq!(counts(&tenant("nobody")), (3, 0, 0, 0));
    let seen = site.manager.visible_status(site.now, &one);
    assert_eq!(seen.jobs[0].tenant.as_deref(), Some("one"));
    assert_eq!(seen.tenants[0].name, "one");
    assert_eq!(seen.tenants[0].jobs, Share { used: 1, max: None });
    assert_eq!(seen.tenants[0].osos, Share { used: 3, max: Some(12) });
    assert_eq!(seen.tenants[0].groups, Share { used: 2, max: None });
}

/// A stream's lock is held as long as its vector travels: nobody waits for another tenant's.
#[test]
fn tenants_stream_beside_each_other() {
    let mut site = site(TenantLimits { streams: Some(1), ..TenantLimits::default() });
    let (one, two) = (site.job_of(&tenant("one")).unwrap(), site.job_of(&tenant("two")).unwrap());
    let mut trees = Vec::new();
    for (job, is_streaming) in [(&one, true), (&two, true), (&two, true), (&one, false)] {
        site.request(job, &ACROSS, 1).unwrap();
        let mut installs = Vec::new();
        while let Some((node, install)) = site.take_install() {
            installs.push(install.stream.map(|stream| stream.tree));
            site.report(node, installed(&install));
        }
        assert!(installs.iter().all(|tree| tree.is_some() == is_streaming), "{installs:?}");
        trees.push(installs[0]);
    }
    assert_ne!(trees[0], trees[1]);
    assert_eq!(trees[1], trees[2], "groups of one tenant take the same lock");
}

/// A manager that has just started knows no job. The first caller that names a number must not get what aggregators
/// tell of it later.
#[test]
fn nobody_squats_in_the_place_of_another_tenants_job_at_the_next_manager() {
    let mut before = site(TenantLimits::default());
    let [alice, mallory] = ["one", "two"].map(tenant);
    let job = before.job_of(&alice).unwrap();
    before.request(&job, &["h0"], 3).unwrap();
    let mut held = Vec::<HeldGroup>::new();
    while let Some((node, install)) = before.take_install() {
        held.push(install.to_held_group().unwrap());
        before.report(node, installed(&install));
    }
    let own = before.job_of(&mallory).unwrap();
    let first_job = JobId(1000);
    let config =
        ManagerConfig { first_epoch: Epoch(1000), first_job, ..config(TenantLimits::default()) };
    let mut after = Manager::new(config, fabric(2, 8), [8; 32]).with_place_keys([PLACE_KEY].into());
    let secrets = [Capability::default(), own.secret, job.secret];
    let mut resume = |owner: &Caller, job, secret| {
        let resume = Some(JobPlace { job, secret });
        after.admit_job(owner, JobRequest { name: "job".into(), processes: 8, resume })
    };
    for secret in secrets {
        let refused = resume(&mallory, job.job, secret).unwrap_err();
        assert_eq!(refused, AdmitError::NoProof { job: job.job });
        assert_eq!(refused.code(), RefusalCode::Forbidden);
    }
    assert_eq!(resume(&alice, job.job, job.secret), Ok(job.clone()));
    // A place of a job that has ended since is none of the job that has its number now.
    assert_eq!(resume(&alice, first_job, job.secret), Err(AdmitError::NoProof { job: first_job }));

    let offer = NodeOffer { registration: registration("leaf0", 8, 32), holds: held.clone() };
    after.register_node(offer).unwrap();
    let seen = |after: &Manager, caller| after.visible_status(Time(0), caller).groups.len();
    assert_eq!((seen(&after, &alice), seen(&after, &mallory)), (1, 0));
}

/// Numbers may coincide by chance: what an aggregator then tells of another tenant's job is not that tenant's.
#[test]
fn groups_of_a_number_that_is_another_tenants_by_now_are_removed() {
    let mut before = site(TenantLimits::default());
    let job = before.job_of(&tenant("one")).unwrap();
    before.request(&job, &["h0"], 3).unwrap();
    let (node, install) = before.take_install().unwrap();
    before.report(node, installed(&install));
    let config = ManagerConfig {
        first_epoch: Epoch(1000),
        first_job: job.job,
        ..config(TenantLimits::default())
    };
    let mut after = Site::new(config, 2, 8, 32);
    let other = after.job_of(&tenant("two")).unwrap();
    assert_eq!(other.job, job.job);
    after.manager.handle_node_gone(after.node["leaf0"]);
    let holds = [install.to_held_group().unwrap()].into();
    let offer = NodeOffer { registration: registration("leaf0", 8, 32), holds };
    after.manager.register_node(offer).unwrap();
    after.drain();
    assert_eq!(after.take_removals().len(), 1);
    assert!(after.manager.status(Time(0)).groups.is_empty());
    // The same within one tenant: the number alone is no proof.
    let resume = Some(JobPlace { job: job.job, secret: job.secret });
    let request = JobRequest { name: "job".into(), processes: 8, resume };
    let refused = after.manager.admit_job(&tenant("one"), request.clone());
    assert_eq!(refused, Err(AdmitError::OtherToken { job: job.job }));
    after.manager.handle_lease_closed(other.job);
    let successor = ManagerConfig { first_job: job.job, ..ManagerConfig::default() };
    let mut third = Site {
        manager: Manager::new(successor, fabric(2, 8), [9; 32]).with_place_keys([PLACE_KEY].into()),
        ..after
    };
    third.job_of(&tenant("one")).unwrap();
    let refused = third.manager.admit_job(&tenant("one"), request);
    assert_eq!(refused, Err(AdmitError::NumberTaken { job: job.job }));
}

#[test]
fn a_secret_is_of_use_with_its_own_token_alone() {
    let mut site = site(TenantLimits::default());
    let job = site.job_of(&tenant("one")).unwrap();
    for other in [tenant("two"), Caller::Operator] {
        let refused = site.request_as(&other, &job, &["h0"], 1).unwrap_err();
        assert_eq!(refused, GroupError::OtherToken { job: job.job });
        assert_eq!(refused.code(), RefusalCode::Forbidden);
    }
    assert_eq!(site.used_in_all(), 0);
    site.grant(&job, &["h0"], 1);
}

#[test]
fn a_job_goes_on_with_its_own_token_alone_also_at_the_next_manager() {
    let limits = TenantLimits { osos: Some(4), ..TenantLimits::default() };
    let mut before = site(limits);
    let one = tenant("one");
    let job = before.job_of(&one).unwrap();
    before.request(&job, &["h0"], 3).unwrap();
    let mut held = Vec::<HeldGroup>::new();
    while let Some((node, install)) = before.take_install() {
        held.push(install.to_held_group().unwrap());
        before.report(node, installed(&install));
    }
    let resume = Some(JobPlace { job: job.job, secret: job.secret });
    let again = |site: &mut Site, owner: &Caller| {
        site.manager.admit_job(owner, JobRequest { name: "job".into(), processes: 8, resume })
    };
    let others = [tenant("two"), Caller::Operator];
    let refused = AdmitError::OtherToken { job: job.job };
    for other in &others {
        assert_eq!(again(&mut before, other), Err(refused.clone()));
    }
    again(&mut before, &one).unwrap();

    let config =
        ManagerConfig { first_epoch: Epoch(1000), first_job: JobId(1000), ..config(limits) };
    let mut after = Site::new(config, 2, 8, 32);
    after.manager.handle_node_gone(after.node["leaf0"]);
    let offer = NodeOffer { registration: registration("leaf0", 8, 32), holds: held };
    let node = after.manager.register_node(offer).unwrap();
    after.node.insert("leaf0".into(), node);
    after.drain();
    for other in &others {
        assert_eq!(again(&mut after, other), Err(refused.clone()));
    }
    again(&mut after, &one).unwrap();
    let refused = after.request(&job, &["h0"], 2).unwrap_err();
    assert!(
        matches!(refused, GroupError::TenantLimit { needs: 2, has: 1, max: 4, .. }),
        "{refused}"
    );
}
