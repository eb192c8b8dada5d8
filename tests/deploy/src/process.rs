//! A process of one of this project's programs in a sample.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Failure;

/// A command line in a sample, and what the sample gives to the process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Process {
    /// The file and the name in the file, for complaints.
    pub place: String,
    /// The program: `order_service` or `idempotent`.
    pub program: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The paths of the files that the sample mounts.
    pub(crate) files: BTreeSet<String>,
    /// The time between the stop signal and the kill, if the sample sets it.
    pub(crate) grace: Option<Duration>,
    /// The time before the stop signal, which counts as part of the grace.
    pub(crate) pre_stop: Duration,
}

/// The programs of the project.
pub(crate) const PROGRAMS: [&str; 2] = ["order_service", "idempotent"];

impl Process {
    /// Returns the values of an option, as `--name=value` or as two arguments.
    pub(crate) fn values<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        let next = self.arguments.iter().skip(1).map(Some).chain([None]);
        self.arguments.iter().zip(next).filter_map(move |(argument, next)| match argument.strip_prefix(option) {
            Some("") => next.map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        })
    }

    /// Returns the paths of the files that the arguments name: `@PATH`, and the path of `--tokens`.
    fn paths(&self) -> impl Iterator<Item = &str> {
        let urls = self.arguments.iter().filter_map(|argument| argument.split_once('@').map(|(_, path)| path));
        urls.chain(self.values("--tokens"))
    }

    /// Returns the port of `--listen` or `--bind`.
    pub(crate) fn port(&self) -> Option<u16> {
        let address = self.values("--listen").chain(self.values("--bind")).next()?;
        address.rsplit_once(':')?.1.parse().ok()
    }

    /// Returns what is wrong with the files.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let place = &self.place;
        let named: BTreeSet<&str> = self.paths().collect();
        let mut all: Vec<String> = Vec::new();
        for path in named.iter().filter(|path| !self.files.contains(**path)) {
            all.push(format!("{place}: an argument names {path}, which the sample does not mount"));
        }
        for path in self.files.iter().filter(|path| !named.contains(path.as_str())) {
            all.push(format!("{place}: {path} is mounted, and no argument names it"));
        }
        if self.arguments.iter().any(|argument| argument.contains("://") && !argument.starts_with("http://127.0.0.1:"))
        {
            all.push(format!("{place}: an argument contains a URL, which other users can read: use @FILE"));
        }
        all
    }

    /// Returns the arguments for a run on this machine: each file is in `folder`, each URL leads to a port that refuses
    /// connections, and servers listen on free ports of loopback.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn runnable(&self, folder: &Path) -> Result<Vec<String>, Failure> {
        let tokens: Vec<&str> = self.values("--tokens").collect();
        let mut arguments = self.arguments.clone();
        for path in self.paths() {
            let name = path.replace(['/', '%'], "_");
            let text = match name {
                _ if tokens.contains(&path) => format!("ann:viewer:{}\n", "0".repeat(64)),
                name if name.contains("redis") => "redis://127.0.0.1:1\n".to_owned(),
                name if name.contains("broker") => "amqp://127.0.0.1:1/%2f\n".to_owned(),
                _ => "postgres://app@127.0.0.1:1/shop\n".to_owned(),
            };
            let file = folder.join(path.replace(['/', '%'], "_"));
            fs::write(&file, text)?;
            #[cfg(unix)]
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            for argument in &mut arguments {
                *argument = argument.replace(path, &file.display().to_string());
            }
        }
        for argument in &mut arguments {
            if let Some((option, _)) =
                argument.split_once('=').filter(|(option, _)| ["--listen", "--bind"].contains(option))
            {
                *argument = format!("{option}=127.0.0.1:0");
            }
        }
        Ok(arguments)
    }
}
