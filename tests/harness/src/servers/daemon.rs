//! A database server: one process, or one with children, with its own folder and port.
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::Folder;
use super::port::{self, Reserved};
use super::process::Process;
use super::tls::Certificates;
use super::{or_panic, until};

/// The number of tries, since another program may take a port that was free.
const TRIES: usize = 20;

/// The differences between the database servers.
pub trait Kind: Debug {
    const NAME: &'static str;
    /// The users that run the server if the test runs as root, which these servers refuse. The first existing user is
    /// used.
    const USERS: [&'static str; 2];
    /// The signal that ends the server without waiting for clients.
    const FAST: &'static str;
    /// The prefix of environment variables that must not reach the server.
    const VARIABLES: &'static str;
    /// The log text for a port that is in use.
    const TAKEN: &'static str;

    /// Creates the files of the server.
    fn init(&self, place: &Place) -> Result<(), String>;
    fn server(&self, place: &Place, port: u16) -> Command;
    /// Returns whether the server accepts connections.
    fn greets(port: u16) -> bool;
}

/// The folder of a server, and the user that runs it.
#[derive(Debug)]
pub struct Place {
    pub(super) folder: Folder,
    run_as: Option<User>,
}

#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    group: u32,
}

/// A private server with its own folder and port. Dropping the value stops the server and removes its folder.
#[derive(Debug)]
pub struct Daemon<K: Kind> {
    // The fields are dropped in this order: a process must not outlive its folder.
    server: Mutex<Process>,
    port: u16,
    _reserved: Reserved,
    pub(super) kind: K,
    pub(super) place: Place,
}

impl<K: Kind> Daemon<K> {
    /// Starts a server that accepts connections.
    pub(super) fn of(kind: K, name: &str) -> Result<Self, String> {
        let folder = Folder::new(name)?;
        let run_as = user::<K>(&folder)?;
        if let Some(user) = run_as {
            chown(folder.path(), Some(user.id), Some(user.group)).map_err(|e| format!("no folder for it: {e}"))?;
        }
        let place = Place { folder, run_as };
        kind.init(&place)?;
        for _ in 0..TRIES {
            let reserved = port::free(false)?;
            let port = reserved.number;
            let mut server = launch(&kind, &place, port)?;
            match ready::<K>(&mut server, port, &place.folder) {
                Ok(()) => return Ok(Self { server: Mutex::new(server), port, _reserved: reserved, kind, place }),
                // Another program has taken the port. The log must not be read a second time.
                Err(why) if why.contains(K::TAKEN) => {
                    fs::remove_file(place.folder.log()).map_err(|e| e.to_string())?;
                }
                Err(why) => return Err(why),
            }
        }
        Err(format!("{TRIES} ports were free and then taken"))
    }

    /// Returns `127.0.0.1:PORT`, which stays the same after a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the id of the main process, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.server().pid()
    }

    /// Returns whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.server().ended().is_none()
    }

    /// Returns the files of a server that was started with TLS.
    pub fn certificates(&self) -> Certificates {
        self.place.certificates()
    }

    /// Returns the log.
    ///
    /// # Panics
    /// If the log cannot be read.
    pub fn log(&self) -> String {
        let log = fs::read(self.place.folder.log()).map_err(|e| format!("the log cannot be read: {e}"));
        String::from_utf8_lossy(&or_panic(log)).into_owned()
    }

    /// Stops all processes of the server (SIGSTOP): connections stay open, but nothing is answered.
    ///
    /// # Panics
    /// If a process does not stop.
    pub fn pause(&self) {
        or_panic(self.server().pause_all());
    }

    /// Continues the paused processes (SIGCONT).
    ///
    /// # Panics
    /// If a process does not continue.
    pub fn resume(&self) {
        or_panic(self.server().resume_all());
    }

    /// Kills all processes of the server (SIGKILL). The server stays down until [`restart`](Self::restart).
    ///
    /// # Panics
    /// If a process remains.
    pub fn kill(&self) {
        or_panic(self.server().kill_all());
    }

    /// Stops the server if it runs, and starts it with the same port and folder.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&self) {
        let mut server = self.server();
        server.end_by(K::FAST);
        *server = or_panic(launch(&self.kind, &self.place, self.port));
        or_panic(ready::<K>(&mut server, self.port, &self.place.folder));
    }

    fn server(&self) -> MutexGuard<'_, Process> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Drop for Daemon<K> {
    fn drop(&mut self) {
        self.server().end_by(K::FAST);
    }
}

impl Place {
    /// Creates certificates that the server can read.
    pub(super) fn certify(&self) -> Result<(), String> {
        let certificates = Certificates::make(self.folder.path())?;
        if let Some(user) = self.run_as {
            for key in certificates.keys() {
                chown(key, Some(user.id), Some(user.group)).map_err(|e| format!("no key for it: {e}"))?;
            }
        }
        Ok(())
    }

    /// Returns the certificates that [`certify`](Self::certify) created.
    pub(super) fn certificates(&self) -> Certificates {
        Certificates::of(self.folder.path())
    }

    /// Returns a command that runs a program in the folder as the server's user.
    pub(super) fn command<K: Kind>(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(K::VARIABLES.as_bytes()) {
                command.env_remove(name);
            }
        }
        if let Some(user) = self.run_as {
            command.uid(user.id).gid(user.group);
        }
        command
    }
}

fn launch<K: Kind>(kind: &K, place: &Place, port: u16) -> Result<Process, String> {
    let folder = &place.folder;
    Process::start_with(kind.server(place, port), folder.path(), &folder.log(), &format!("{} KILL", K::FAST))
}

/// Returns the user that runs the server, if it is not the user of the test.
fn user<K: Kind>(folder: &Folder) -> Result<Option<User>, String> {
    let owner = fs::metadata(folder.path()).map_err(|e| format!("no folder for it: {e}"))?.uid();
    if owner != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd cannot be read: {e}"))?;
    let found = K::USERS.iter().find_map(|name| users.lines().find_map(|line| entry(line, name)));
    found.map(Some).ok_or_else(|| {
        format!("{} refuses to run as root, and there is no user {}: add one", K::NAME, K::USERS.join(" nor "))
    })
}

/// Parses a line such as `postgres:x:106:113:…`.
fn entry(line: &str, name: &str) -> Option<User> {
    let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
    Some(User { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// Waits until the server accepts a connection.
fn ready<K: Kind>(server: &mut Process, port: u16, folder: &Folder) -> Result<(), String> {
    let mut ended = false;
    let done = until(&format!("{} takes connections", K::NAME), || {
        ended = server.ended().is_some();
        ended || K::greets(port)
    });
    match done {
        Ok(()) if !ended => Ok(()),
        Ok(()) => Err(format!("{} ended at once:\n{}", K::NAME, folder.tail())),
        Err(why) => Err(format!("{why}:\n{}", folder.tail())),
    }
}
