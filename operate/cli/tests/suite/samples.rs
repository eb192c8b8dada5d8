//! The command lines of the deployment samples, run with URLs of servers that refuse connections.
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use idempotent_deploy_samples::processes;

use crate::support::{bare, ran};

/// Returns the exit code of a command line, and what it printed.
fn exit(arguments: &[String]) -> (i32, String) {
    let ran = ran(bare(env!("CARGO_BIN_EXE_idempotent")).args(arguments).stdin(Stdio::null()).output().unwrap());
    (ran.code, format!("{}{}", ran.out, ran.err))
}

#[test]
fn each_command_line_of_the_samples_is_accepted_and_reaches_for_its_server() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let own = processes(checkout).unwrap().into_iter().filter(|process| process.program == "idempotent");
    let mut commands = BTreeSet::new();
    for process in own {
        let folder = tempfile::tempdir().unwrap();
        let arguments = process.runnable(folder.path()).unwrap();
        // An unknown option, an invalid value, and a missing option of the console end with exit code 2.
        let (code, text) = exit(&arguments);
        assert_eq!(code, 7, "{}: {arguments:?}: {text}", process.place);
        let unknown = [arguments, vec!["--unknown".to_owned()]].concat();
        assert_eq!(exit(&unknown).0, 2, "{}", process.place);
        let known = ["console", "doctor", "migrate", "purge"].into_iter();
        commands.extend(known.filter(|name| unknown.iter().any(|word| word == name)));
    }
    assert_eq!(commands.len(), 4, "{commands:?}");
}
