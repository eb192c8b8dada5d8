//! The application `order_service`, of the deployment samples: its processes are stopped by SIGTERM while orders pass through them.
mod fleet;
mod orders;
mod rights;

use std::process::Command;

use idempotent_deploy_samples::{Process, processes};

use self::fleet::{Fleet, Role};
use crate::example;

/// The number of requests between two moments of a role.
const STEP: u64 = 8;

/// Stops each role in turn, `moments` times, after a number of requests that grows by [`STEP`]: from its start to full traffic. Each process exits with 0 within its grace period and
/// leaves no held key. In the end, each accepted order is shipped, and no order twice.
fn stopped_at(moments: u64) {
    let mut fleet = Fleet::start();
    for moment in 0..moments {
        let role = Role::ALL[(moment % Role::ALL.len() as u64) as usize];
        fleet.stop_after(role, moment / Role::ALL.len() as u64 * STEP);
        fleet.restart(role);
    }
    fleet.settles(moments as usize);
}

/// Runs a process, which accepts its arguments and then finds no server, and returns its role.
fn role_of_accepted(process: &Process) -> String {
    let folder = tempfile::tempdir().unwrap();
    let arguments = process.runnable(folder.path()).unwrap();
    let ended = Command::new(example::binary("order_service")).args(&arguments).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    // An argument that it rejects is exit code 2.
    assert_eq!(ended.status.code(), Some(1), "{}: {arguments:?}: {text}", process.place);
    assert!(text.contains("refused") || text.contains("timed out"), "{}: {text}", process.place);
    arguments[0].clone()
}

#[test]
fn each_command_line_of_the_samples_is_accepted() {
    let own = processes(example::checkout()).unwrap().into_iter().filter(|process| process.program == "order_service");
    // Each of them waits for the database.
    let runs: Vec<_> = own.map(|process| std::thread::spawn(move || role_of_accepted(&process))).collect();
    let roles: std::collections::BTreeSet<String> = runs.into_iter().map(|run| run.join().unwrap()).collect();
    assert_eq!(roles.into_iter().collect::<Vec<_>>(), ["migrate", "relay", "serve", "work"]);
}

#[test]
fn a_process_stopped_at_any_moment_exits_in_time_and_loses_and_repeats_no_order() {
    stopped_at(40);
}

mod extras {
    #[test]
    fn a_process_stopped_at_any_of_200_moments_exits_in_time_and_loses_and_repeats_no_order() {
        super::stopped_at(200);
    }
}
