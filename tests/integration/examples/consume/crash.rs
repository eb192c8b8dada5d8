//! More than one process on a store, and one that dies.
use crate::consume::shared;
use crate::consume::support::Job;
use crate::wait::until;

#[test]
fn two_processes_share_the_work() {
    let job = Job::new();
    let jobs = ["a", "b"].map(|_| job.spawn(&["--json", "--slow-ms", "5"]));
    let ended = jobs.map(|running| running.ended().exits(0));
    let sums = ended.each_ref().map(|ended| ended.counts(["deliveries", "executed", "replayed"]));
    assert_eq!(sums.map(|[deliveries, ..]| deliveries), [494, 494]);
    assert_eq!(sums.map(|[_, executed, _]| executed).iter().sum::<u64>(), 287, "{sums:?}");
    assert!(ended.iter().all(|ended| !ended.stderr.contains("dead worker")), "the other one lives");
    job.assert_each_key_once();
}

#[test]
fn a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker() {
    let (second, effects) = shared::a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker(&[]);
    // What the first one finished did not run again.
    let [executed, deferred] = second.counts(["executed", "deferred"]);
    assert_eq!(executed, effects as u64);
    assert!(deferred > 0, "it waited for the held keys");
}

#[test]
fn keys_with_an_expired_lease_are_taken_over_at_once() {
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n");
    let running = job.spawn(&["--json", "--slow-ms", "3600000"]);
    until("a run", || job.path("store.db").exists() && holds(&job));
    running.kill();
    until("the lease has run out", || expired(&job));
    let second = job.run(&["--json"]).exits(0);
    assert_eq!(second.counts(["executed", "deferred"]), [1, 0]);
    assert!(second.stderr.contains("1 keys held by a dead worker, free in 0 s"), "{}", second.stderr);
}

#[test]
fn a_record_that_cannot_be_read_ends_the_job_with_its_reason() {
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n");
    job.run(&["--json"]).exits(0);
    job.spoil("UPDATE idempotent_record SET state = 99");
    let ended = job.run(&["--json"]).exits(2);
    assert_eq!(ended.counts(["deliveries", "executed"]), [0, 0]);
    assert!(ended.stderr.contains("error: the handler did not run: the record is corrupt"), "{}", ended.stderr);
    assert_eq!(job.effects().len(), 1, "it may have been consumed: it does not run");
}

/// Returns whether the only key is being consumed.
fn holds(job: &Job) -> bool {
    lease(job).is_some()
}

fn expired(job: &Job) -> bool {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    lease(job).is_some_and(|until| u128::from(until) < now)
}

/// Returns the end of the lease of the only key.
fn lease(job: &Job) -> Option<u64> {
    shared::consuming(&format!("sqlite:{}", job.path("store.db").display())).first().copied()
}
