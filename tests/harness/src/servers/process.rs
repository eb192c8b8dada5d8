//! A process that ends when its value is dropped, or at the latest with the process that started it.
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{LOOK, missing, until};

/// The time limit for an orderly end.
const ORDERLY: Duration = Duration::from_secs(2);

/// The watchdog script. It waits for its stdin to end; a line before that cancels it. Then it ends the process with the
/// given signals in order, waiting a second after each.
const WATCHDOG: &str = r#"read -r _ || {
    for signal in $3; do
        kill -s "$signal" "$1"
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" || break 2; sleep 0.1; done
    done 2>/dev/null
    rm -rf -- "$2"
}"#;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a process whose stdout and stderr are appended to `log`. When the test's process has ended, this process
    /// is killed and `folder` is removed.
    ///
    /// # Errors
    /// If the process or its watchdog cannot be started.
    pub(super) fn start(command: Command, folder: &Path, log: &Path) -> Result<Self, String> {
        Self::start_with(command, folder, log, "KILL")
    }

    /// Starts a process that the watchdog ends by these signals, separated by blanks.
    ///
    /// # Errors
    /// If the process or its watchdog cannot be started.
    pub(super) fn start_with(mut command: Command, folder: &Path, log: &Path, signals: &str) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let out = fs::OpenOptions::new().create(true).append(true).open(log).map_err(|e| e.to_string())?;
        let err = out.try_clone().map_err(|e| e.to_string())?;
        // Each has its own process group, so that a signal to the test's group does not end the watchdog early.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let mut child = command.spawn().map_err(|e| missing(&program, &e))?;
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "sh", &child.id().to_string()]).arg(folder).arg(signals).process_group(0);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match watchdog.spawn() {
            Ok(watchdog) => Ok(Self { child, watchdog, ended: None }),
            Err(e) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(missing("sh", &e))
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if the process has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_some() {
                self.dismiss();
            }
        }
        self.ended
    }

    /// Sends SIGSTOP, and waits until the process has stopped.
    ///
    /// # Errors
    /// If the process has not stopped.
    pub(super) fn pause(&mut self) -> Result<(), String> {
        self.signal("STOP");
        let pid = self.pid();
        until("stopped", || state(pid) == Some('T'))
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    /// If the process stays stopped.
    pub(super) fn resume(&mut self) -> Result<(), String> {
        self.signal("CONT");
        let pid = self.pid();
        until("resumed", || state(pid) != Some('T'))
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub(super) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
        self.dismiss();
    }

    /// Sends SIGTERM, and SIGKILL if the process does not end. Waits until the process has ended.
    pub(super) fn stop(&mut self) {
        self.signal("TERM");
        self.signal("CONT");
        let start = Instant::now();
        while self.ended().is_none() && start.elapsed() < ORDERLY {
            std::thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Sends SIGSTOP to the process and its children, which may be sessions of their own. Waits until all have stopped.
    ///
    /// # Errors
    /// If a process has not stopped.
    pub(super) fn pause_all(&mut self) -> Result<(), String> {
        self.pause()?;
        // The stopped process creates no more children.
        let children = self.children();
        send("STOP", &children);
        // A child that has ended remains as a zombie, because its parent is stopped and does not wait for it.
        until("stopped", || children.iter().all(|pid| matches!(state(*pid), None | Some('T' | 'Z'))))
    }

    /// Sends SIGCONT to all processes that [`pause_all`](Self::pause_all) stopped.
    ///
    /// # Errors
    /// If a process stays stopped.
    pub(super) fn resume_all(&mut self) -> Result<(), String> {
        let children = self.children();
        send("CONT", &children);
        until("resumed", || children.iter().all(|pid| state(*pid) != Some('T')))?;
        self.resume()
    }

    /// Sends SIGKILL to the process and its children, and waits until all have ended.
    ///
    /// # Errors
    /// If a process remains.
    pub(super) fn kill_all(&mut self) -> Result<(), String> {
        if self.ended().is_some() {
            return Ok(());
        }
        self.pause()?;
        let children = self.children();
        self.kill();
        send("KILL", &children);
        until("killed", || children.iter().all(|pid| matches!(state(*pid), None | Some('Z'))))
    }

    /// Ends the process by this signal. If it does not end, kills it and all of its children.
    pub(super) fn end_by(&mut self, signal: &str) {
        self.signal(signal);
        let start = Instant::now();
        while self.ended().is_none() && start.elapsed() < ORDERLY {
            std::thread::sleep(LOOK);
        }
        let _ = self.kill_all();
    }

    fn children(&mut self) -> Vec<u32> {
        if self.ended().is_some() {
            return Vec::new();
        }
        let own = self.pid();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| parent(*pid) == Some(own)).collect()
    }

    /// Sends a signal only before the process has been waited for, so that its id cannot belong to another process.
    /// Uses the `kill` of the shell, because the standard library only has SIGKILL.
    fn signal(&mut self, signal: &str) {
        if self.ended().is_none() {
            send(signal, &[self.pid()]);
        }
    }

    fn dismiss(&mut self) {
        if let Some(mut stdin) = self.watchdog.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.watchdog.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn send(signal: &str, pids: &[u32]) {
    if !pids.is_empty() {
        let pids = pids.iter().map(u32::to_string);
        let _ = Command::new("sh").args(["-c", r#"kill -s "$@""#, "sh", signal]).args(pids).status();
    }
}

fn state(pid: u32) -> Option<char> {
    fields(pid)?.chars().next()
}

fn parent(pid: u32) -> Option<u32> {
    fields(pid)?.split(' ').nth(1)?.parse().ok()
}

/// Returns the fields after the program's name, which may itself contain brackets. The first field is the letter of the
/// state.
fn fields(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.trim_start().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::files::Folder;
    use super::*;

    #[test]
    fn a_child_that_ended_does_not_keep_its_parent_from_being_paused_and_resumed() {
        let folder = Folder::new("process").unwrap();
        let mut command = Command::new("sh");
        // The shell becomes a program that does not wait for its children.
        command.args(["-c", "true & exec sleep 600"]);
        let mut process = Process::start(command, folder.path(), &folder.log()).unwrap();
        until("a child has ended", || process.children().iter().any(|pid| state(*pid) == Some('Z'))).unwrap();
        process.pause_all().unwrap();
        process.resume_all().unwrap();
        assert!(process.ended().is_none());
    }
}
