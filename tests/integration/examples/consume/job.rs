//! The real data: 494 deliveries of 287 keys.
use crate::consume::support::{Job, count};

const SUMS: [&str; 4] = ["deliveries", "distinct_keys", "executed", "replayed"];

#[test]
fn each_key_runs_once_and_a_second_run_runs_nothing() {
    let job = Job::new();
    let first = job.run(&["--json"]).exits(0);
    assert_eq!(first.counts(SUMS), [494, 287, 287, 207]);
    assert_eq!(first.counts(["failed", "dead", "malformed"]), [0, 0, 0]);
    assert!(!first.stderr.contains("--fresh"), "{}", first.stderr);
    job.assert_each_key_once();
    assert_eq!(job.dead_letters(), b"");

    let second = job.run(&["--json"]).exits(0);
    assert_eq!(second.counts(SUMS), [494, 287, 0, 494]);
    assert!(second.stderr.contains("--fresh starts over"), "{}", second.stderr);
    job.assert_each_key_once();
}

#[test]
fn the_json_line_has_its_fields_in_order() {
    let line = Job::new().run(&["--json"]).exits(0).stdout;
    let mut rest = line.as_str();
    for name in [
        "{\"deliveries\":",
        ",\"distinct_keys\":",
        ",\"executed\":",
        ",\"replayed\":",
        ",\"deferred\":",
        ",\"failed\":",
        ",\"dead\":",
        ",\"malformed\":",
        ",\"elapsed_ms\":",
    ] {
        rest = rest.strip_prefix(name).unwrap_or_else(|| panic!("{name} in {line}"));
        rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    assert_eq!(rest, ",\"level\":\"L1\"}\n");
}

#[test]
fn the_service_prints_its_address_and_its_purpose() {
    let job = Job::new();
    let first = job.run(&[]).exits(0).stdout;
    for part in ["494 deliveries of 287 keys", "store    store.db", "effects.db: 287 rows, no key twice", "level L1: "]
    {
        assert!(first.contains(part), "{part} in {first}");
    }
    let second = job.run(&[]).exits(0);
    assert!(second.stderr.contains("nothing ran: the store knows every key; --fresh starts over"), "{}", second.stderr);
}

#[test]
fn one_worker_and_sixteen_come_to_the_same() {
    for workers in ["1", "16"] {
        let job = Job::new();
        let ended = job.run(&["--json", "--workers", workers, "--slow-ms", "1"]).exits(0);
        assert_eq!(ended.counts(SUMS), [494, 287, 287, 207]);
        job.assert_each_key_once();
    }
}

#[test]
fn memory_serves_one_process() {
    let job = Job::new();
    for _ in 0..2 {
        let ended = job.run(&["--json", "--store", "memory"]).exits(0);
        assert_eq!(ended.counts(SUMS), [494, 287, 287, 207]);
        // The rows of a run whose store is gone would look like effects made twice.
        job.assert_each_key_once();
    }
    let told = job.run(&["--store", "sqlite::memory:"]).exits(0).stdout;
    assert!(told.contains("287 rows, no key twice"), "{told}");
    assert!(!job.path("memory").exists());
}

#[test]
fn fresh_starts_over() {
    let job = Job::new();
    job.run(&["--json"]).exits(0);
    let ended = job.run(&["--json", "--fresh"]).exits(0);
    assert_eq!(ended.counts(SUMS), [494, 287, 287, 207]);
    job.assert_each_key_once();
}

#[test]
fn a_store_is_a_path_or_its_url() {
    let job = Job::new();
    job.run(&["--json", "--store", "sqlite:other.db"]).exits(0);
    let ended = job.run(&["--json", "--store", "other.db"]).exits(0);
    assert_eq!(ended.counts(SUMS), [494, 287, 0, 494]);
}

#[test]
fn every_third_run_fails_and_is_made_up_for() {
    let job = Job::new();
    let ended = job.run(&["--json", "--fail-every", "3"]).exits(0);
    assert_eq!(ended.counts(SUMS), [494, 287, 287, 207]);
    // Runs are counted over the whole process: 287 that go well and 143 that fail are 430.
    assert_eq!(ended.counts(["failed", "dead"]), [143, 0]);
    job.assert_each_key_once();
}

#[test]
fn a_message_that_fails_17_times_is_dead_lettered_and_its_duplicates_too() {
    let lines = "{\"delivery_id\":\"a\"}\n{\"delivery_id\":\"b\"}\n{\"delivery_id\":\"a\"}\n";
    let job = Job::over(lines.as_bytes());
    let first = job.run(&["--json", "--fail-every", "1"]).exits(1);
    assert_eq!(first.counts(["deliveries", "executed", "replayed", "dead", "failed"]), [3, 0, 0, 3, 34]);
    let sorted = |text: &[u8]| {
        let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&job.dead_letters()), sorted(lines.as_bytes()));
    assert!(job.effects().is_empty());

    // A dead key stays dead until a fresh start.
    let second = job.run(&["--json"]).exits(1);
    assert_eq!(second.counts(["executed", "dead", "failed"]), [0, 3, 0]);
    assert!(second.stderr.contains("given up after 17 runs"), "{}", second.stderr);
    let third = job.run(&["--json", "--fresh"]).exits(0);
    assert_eq!(third.counts(["executed", "replayed", "dead"]), [2, 1, 0]);
    assert_eq!(job.dead_letters(), b"");
}

#[test]
fn standard_input_is_an_input() {
    let job = Job::over(b"");
    let input = b"{\"delivery_id\":1}\nno\n{\"delivery_id\":1}";
    let ended = job.run_with_stdin(&["--json", "--input", "-"], input).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "replayed", "malformed"]), [3, 1, 1, 1]);
    assert_eq!(std::fs::read(job.path("stdin.dead.jsonl")).unwrap(), b"no\n");
}

#[test]
fn an_input_without_deliveries_is_no_error() {
    for input in ["", "\n\n \r\n"] {
        let ended = Job::over(input.as_bytes()).run(&["--json"]).exits(0);
        assert_eq!(count(&ended.json(), "deliveries"), 0);
        assert!(ended.stderr.contains("the input has no deliveries"), "{}", ended.stderr);
    }
}
