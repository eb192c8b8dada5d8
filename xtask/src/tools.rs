//! Execution of other programs.
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `Ok` contains whether everything succeeded. `Err` means that the result is unknown.
pub(crate) type Done = Result<bool, Box<dyn Error>>;

/// Returns the folder of the workspace.
pub(crate) fn root() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run it as `cargo xtask`")?;
    Ok(Path::new(&own).parent().ok_or("xtask has no parent folder")?.to_owned())
}

/// Returns cargo's target folder.
pub(crate) fn target() -> Result<PathBuf, Box<dyn Error>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(root()?.join(target))
}

/// Returns a command for the cargo that started this program, in the workspace's folder.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = in_workspace(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))?;
    command.args(arguments).env("CARGO_TERM_COLOR", "never");
    Ok(command)
}

/// Returns a command in the workspace's folder. The command, or a program that it starts, may be cargo.
pub(crate) fn in_workspace(program: impl AsRef<OsStr>) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(program);
    command.current_dir(root()?).stdin(Stdio::null());
    // The variables that cargo set for this process. Some build scripts read them. They would run again, followed by
    // minutes of building, after each switch between `cargo test` and `cargo xtask test`.
    let own = ["CARGO_MANIFEST_", "CARGO_PKG_"];
    for (name, _) in std::env::vars_os() {
        if own.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes())) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Starts the command with stdout and stderr in one pipe, so that lines stay in order.
fn merged(command: &mut Command) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    // The command holds copies of the pipe's other end. While it exists, the pipe does not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok((child?, reader))
}

/// Runs the command, copies its output to stdout, and passes each line to `see`.
pub(crate) fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> io::Result<ExitStatus> {
    let (mut child, reader) = merged(command)?;
    lines(reader, |line| {
        // A closed reader must not end the run.
        let _ = io::stdout().write_all(line).and_then(|()| io::stdout().flush());
        see(String::from_utf8_lossy(line).trim_end());
    })?;
    child.wait()
}

/// Runs the command silently, and returns its output.
pub(crate) fn capture(command: &mut Command) -> io::Result<(ExitStatus, String)> {
    let (mut child, reader) = merged(command)?;
    let mut output = String::new();
    lines(reader, |line| output.push_str(&String::from_utf8_lossy(line)))?;
    Ok((child.wait()?, output))
}

/// Runs a command silently.
pub(crate) fn ran(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let (status, output) = capture(command).map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {output}").into()) }
}

/// Calls the function for each item, some at a time, and returns the results in the order of the items.
pub(crate) fn concurrently<T: Send, R: Send>(
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    at_a_time: usize,
    work: impl Fn(usize, T) -> R + Sync,
) -> Vec<R> {
    let (waiting, results) = (Mutex::new(items.into_iter().enumerate()), Mutex::new(BTreeMap::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some((nth, item)) = next() {
                    let result = work(nth, item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(nth, result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Returns the date and the time, in UTC.
pub(crate) fn date() -> Result<String, Box<dyn Error>> {
    let (_, date) = capture(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]))?;
    Ok(date.trim().to_owned())
}

/// Returns the path of a program from its crate, and installs this version into the target folder unless it is there.
pub(crate) fn program(name: &str, version: &str) -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join("tools").join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        println!("xtask: installing {name} {version}");
        let mut install = cargo(&["install", name, "--locked", "--version", version, "--root"])?;
        // The link-time optimisation of cargo-deny takes longer than the rest of its build, and a run of it takes seconds.
        install.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        ran(install.arg(&folder))?;
    }
    Ok(program)
}

/// Returns the path of an installed program.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns whether this is the last line of a test binary of which at least one test passed and none failed.
pub(crate) fn some_passed(line: &str) -> bool {
    line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 ")
}

fn lines(reader: PipeReader, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        see(&line);
        line.clear();
    }
    Ok(())
}
