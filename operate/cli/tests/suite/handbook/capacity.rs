//! The plans in the guide `capacity`, compared with the output of the program.
use std::fs;
use std::path::Path;

use crate::handbook::incident::shell;
use crate::support::ran;

/// Returns the guide with the output of each command in its console blocks, and the number of commands.
fn with_outputs(guide: &str) -> (String, usize) {
    let (mut text, mut commands, mut is_console) = (String::new(), 0, false);
    for line in guide.lines() {
        match line.strip_prefix("```") {
            Some(language) => is_console = language == "console",
            // The output of the command before replaces this line.
            None if is_console && !line.starts_with("$ ") => continue,
            None => {}
        }
        text += line;
        text += "\n";
        if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            text += &output(command);
            commands += 1;
        }
    }
    (text, commands)
}

/// Runs a command as on a terminal, and returns its output.
fn output(command: &str) -> String {
    assert!(command.starts_with("idempotent plan "), "{command}");
    let ran = ran(shell(command).env("IDEMPOTENT_OUTPUT", "table").output().unwrap());
    assert_eq!(ran.code, 0, "{command}: {ran:?}");
    ran.out
}

#[test]
fn the_plans_of_the_guide_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guides/capacity.md");
    let guide = fs::read_to_string(&path).unwrap();
    let (printed, commands) = with_outputs(&guide);
    assert!(commands >= 3, "the guide has a plan for each size");
    if std::env::var("GUIDE").is_ok_and(|value| value == "overwrite") {
        return fs::write(&path, printed).unwrap();
    }
    assert_eq!(
        printed, guide,
        "`GUIDE=overwrite cargo test -p idempotent-cli -- plans_of_the_guide` writes the outputs"
    );
}
