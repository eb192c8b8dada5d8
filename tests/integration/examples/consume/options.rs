//! The command line: what is refused, and that it says why.
use crate::consume::support::{Job, Running};

/// Checks that the arguments are refused with these parts, and without a password.
#[track_caller]
pub(crate) fn refused(arguments: &[&str], parts: &[&str]) -> Job {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    std::fs::write(job.path("notes.txt"), "notes").unwrap();
    let ended = job.run(&[&["--json"], arguments].concat()).exits(2);
    assert_eq!(ended.stdout, "", "{arguments:?}");
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{arguments:?}: {part} in {}", ended.stderr);
    }
    assert_eq!(std::fs::read(job.path("notes.txt")).unwrap(), b"notes");
    job
}

#[test]
fn an_input_that_cannot_be_read_is_named_with_the_reason() {
    refused(&["--input", "nowhere.jsonl"], &["cannot read nowhere.jsonl: No such file"]);
    refused(&["--input", "."], &["cannot read .: is a directory"]);
}

#[test]
fn a_store_that_cannot_be_opened_is_named_with_the_reason() {
    refused(&["--store", "no/such/store.db"], &["no/such/store.db", "is not a directory"]);
    refused(&["--store", "."], &["is a directory"]);
    refused(&["--store", "notes.txt"], &["notes.txt", "not an SQLite database"]);
    refused(&["--store", ""], &["--store is empty"]);
    refused(&["--store", "redis://:hunter2@127.0.0.1:1"], &["no connection to 127.0.0.1:1 ", "refused"]);
    refused(&["--store", "redis+sentinel://127.0.0.1:1"], &["the name of the primary is missing"]);
    refused(
        &["--store", "postgres://u:hunter2@127.0.0.1:1/db"],
        &["127.0.0.1:1/db", "refused", "check that PostgreSQL is running"],
    );
    refused(
        &["--store", "mysql://u:hunter2@127.0.0.1:1/db"],
        &["127.0.0.1:1/db", "refused", "check that MariaDB or MySQL is running"],
    );
    refused(&["--store", "mysql://u:hunter2@127.0.0.1:1"], &["names no database"]);
    refused(&["--store", "etcd://h"], &["the scheme `etcd` is not known", "`sqlite:PATH`"]);
}

#[test]
fn effects_that_cannot_be_written_are_named_with_the_reason() {
    refused(&["--effects", "no/such/effects.db"], &["cannot use the effects no/such/effects.db", "no folder no/such"]);
    refused(&["--effects", "notes.txt"], &["cannot use the effects notes.txt", "not a database"]);
    refused(&["--effects", "./store.db"], &["store and effects are both"]);
}

#[test]
fn only_a_database_is_removed() {
    refused(&["--fresh", "--store", "notes.txt"], &["--fresh does not remove notes.txt: it is no SQLite database"]);
    refused(&["--fresh", "--effects", "notes.txt"], &["--fresh does not remove notes.txt"]);
}

#[test]
fn an_invalid_option_is_refused_with_the_valid_ones() {
    refused(&["--worker", "2"], &["--worker", "similar", "--workers"]);
    refused(&["--workers", "0"], &["1..=1024"]);
    refused(&["--fail-every", "0"], &["--fail-every"]);
    refused(&["--slow-ms", "soon"], &["--slow-ms"]);
    refused(&["--key", "a..b"], &["a field's name is empty"]);
    refused(&["--key", ""], &["a field's name is empty"]);
}

#[test]
fn the_help_names_the_dead_letters_and_the_exit_codes() {
    // Built with the whole workspace, the help is wrapped to the width of the terminal.
    let help = Job::new().run(&["--help"]).exits(0).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["INPUT.dead.jsonl", "Exit codes: 0 ", "1 there are dead letters", "130 interrupted", "143 terminated"]
    {
        assert!(help.contains(part), "{part} in {help}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for arguments in [&[][..], &["--json"], &["--help"]] {
        let job = Job::new();
        let mut child = job.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        drop(child.stderr.take());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// Ctrl-C lets running handlers finish, and prints the counts. The next run handles the rest.
#[cfg(unix)]
#[test]
fn an_interrupted_job_is_gone_on_with() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let job = Job::new();
        let running: Running = job.spawn(&["--json", "--slow-ms", "50"]);
        crate::wait::until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 8));
        let sent = std::process::Command::new("kill").arg(format!("-{signal}")).arg(running.id().to_string()).status();
        assert!(sent.unwrap().success());
        let first = running.ended().exits(code);
        let [executed] = first.counts(["executed"]);
        assert!((8..287).contains(&executed), "{}", first.stdout);
        assert!(first.stderr.contains("the same command again goes on"), "{}", first.stderr);

        // Nothing was left held: no lease has to run out.
        let second = job.run(&["--json"]).exits(0);
        assert_eq!(second.counts(["deliveries", "executed"]), [494, 287 - executed]);
        assert!(!second.stderr.contains("dead worker"), "{}", second.stderr);
        job.assert_each_key_once();
    }
}
