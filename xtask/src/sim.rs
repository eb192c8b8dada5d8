//! The commands `cargo xtask sim` and `cargo xtask sim scale`: the simulators, built with optimisation. They parse their
//! own arguments and print their own results.
use std::process::ExitCode;

use crate::tools::cargo;

const SIMULATOR: [&str; 7] = ["run", "--release", "--quiet", "--locked", "--package", "idempotent-simulator", "--bin"];

/// The exit code for a run that did not start.
const VACUOUS: u8 = 2;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    match arguments {
        [first, rest @ ..] if first == "scale" => pass_on(&[&SIMULATOR[..], &["idempotent-sim-scale"]].concat(), rest),
        _ => pass_on(&[&SIMULATOR[..], &["idempotent-sim"]].concat(), arguments),
    }
}

/// Runs a program of the workspace that parses its arguments and chooses its exit codes.
pub(crate) fn pass_on(program: &[&str], arguments: &[String]) -> ExitCode {
    let status = cargo(program).and_then(|mut cargo| {
        // In the caller's folder, so that relative file names work.
        Ok(cargo.current_dir(std::env::current_dir()?).arg("--").args(arguments).status()?)
    });
    match status.map(|status| status.code()) {
        Ok(Some(code)) if code <= i32::from(VACUOUS) => ExitCode::from(u8::try_from(code).unwrap_or(VACUOUS)),
        Ok(_) => ExitCode::from(VACUOUS),
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::from(VACUOUS)
        }
    }
}
