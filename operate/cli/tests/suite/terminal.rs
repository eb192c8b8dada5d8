//! The command line on a terminal.
use std::process::{Command, Stdio};

use crate::sqlite::file;
use crate::support::{Ran, key, ran};

/// Runs the command line under a pseudo terminal, on which stdout and stderr are one stream.
fn on_terminal(store: &str, command_line: &str) -> Ran {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("\"$PROGRAM\" {command_line}"), "/dev/null"]).stdin(Stdio::null()).env_clear();
    command.env("PROGRAM", env!("CARGO_BIN_EXE_idempotent")).env("IDEMPOTENT_STORE", store).env("USER", "ann");
    command.env("PATH", "/usr/bin:/bin");
    ran(command.output().unwrap())
}

#[tokio::test]
async fn a_terminal_shows_tables_and_a_log_without_colours() {
    let (_folder, url) = file().await;
    let listed = on_terminal(&url, "list");
    assert!(listed.code == 0 && listed.out.contains("STATE") && listed.out.contains(&key("held")), "{listed:?}");

    let forget = format!("forget '{}' --yes --reason 'stock corrected'", key("poison"));
    let forgotten = on_terminal(&url, &forget);
    assert!(forgotten.code == 0 && forgotten.out.contains("idempotent::audit"), "{forgotten:?}");
    assert!(!forgotten.out.contains('\u{1b}'), "{forgotten:?}");
}
