//! Running other programs.
use std::error::Error;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Ok: whether all went well. Err: it could not be found out.
pub(crate) type Done = Result<bool, Box<dyn Error>>;

/// The workspace's folder.
pub(crate) fn root() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run it as `cargo xtask`")?;
    Ok(Path::new(&own).parent().ok_or("xtask has no parent folder")?.to_owned())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> Result<PathBuf, Box<dyn Error>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(root()?.join(target))
}

/// cargo, the one this was started by, in the workspace's folder.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()?).env("CARGO_TERM_COLOR", "never").stdin(Stdio::null());
    // What cargo told this process about itself. Some build scripts look at it: they would run anew, and minutes of
    // building after them, each time somebody changes between `cargo test` and `cargo xtask test`.
    let own = ["CARGO_MANIFEST_", "CARGO_PKG_"];
    for (name, _) in std::env::vars_os() {
        if own.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes())) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Starts it with stdout and stderr in one pipe, so that lines come in the order they were written.
fn merged(command: &mut Command) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    // The command holds copies of the pipe's other end: as long as it does, the pipe does not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok((child?, reader))
}

/// Runs it, passes its output through to stdout, and shows each line to `see`.
pub(crate) fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> io::Result<ExitStatus> {
    let (mut child, reader) = merged(command)?;
    lines(reader, |line| {
        // A reader that went away must not end the run half-way.
        let _ = io::stdout().write_all(line).and_then(|()| io::stdout().flush());
        see(String::from_utf8_lossy(line).trim_end());
    })?;
    child.wait()
}

/// Runs it silently; says what it wrote.
pub(crate) fn capture(command: &mut Command) -> io::Result<(ExitStatus, String)> {
    let (mut child, reader) = merged(command)?;
    let mut output = String::new();
    lines(reader, |line| output.push_str(&String::from_utf8_lossy(line)))?;
    Ok((child.wait()?, output))
}

/// Runs a command silently.
///
/// # Errors
/// The command cannot be started, or fails; the error has its output.
pub(crate) fn ran(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let (status, output) = capture(command).map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {output}").into()) }
}

/// Returns the date and the time, in UTC.
///
/// # Errors
/// The program `date` cannot be started.
pub(crate) fn date() -> Result<String, Box<dyn Error>> {
    let (_, date) = capture(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]))?;
    Ok(date.trim().to_owned())
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
