//! The run of a section's commands on a prepared incident.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::handbook::guide::sections;
use crate::support::{Ran, bare, ran};

/// An incident that a section of a guide describes, with the values of the placeholders in its commands.
///
/// [`end`](Self::end) panics if the incident did not run each command of the section.
#[derive(Debug)]
pub(crate) struct Incident {
    section: &'static str,
    commands: BTreeSet<String>,
    run: BTreeSet<String>,
    environment: BTreeMap<&'static str, String>,
    values: Vec<(&'static str, String)>,
}

impl Incident {
    /// Creates the incident of a section.
    pub(crate) fn of(guide: &str, section: &'static str) -> Self {
        let found = sections(guide).into_iter().find(|found| found.title == section);
        let commands = found.unwrap_or_else(|| panic!("no section is named `{section}`")).commands;
        let values = vec![("…", "'the cause is repaired'".to_owned())];
        Self { section, commands, run: BTreeSet::new(), environment: BTreeMap::new(), values }
    }

    /// Sets a variable of the environment, such as `IDEMPOTENT_STORE`.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.insert(name, value.into());
    }

    /// Sets the value of a placeholder, such as `KEY`, or of a name that only an example has, such as a host.
    pub(crate) fn value(&mut self, placeholder: &'static str, value: impl Into<String>) {
        self.values.retain(|(known, _)| *known != placeholder);
        self.values.push((placeholder, value.into()));
    }

    /// Sets the key that commands name as `KEY`.
    pub(crate) fn key(&mut self, key: &str) {
        self.value("KEY", format!("'{key}'"));
    }

    /// Runs a command of the section by a shell, with these arguments at its end.
    pub(crate) fn try_with(&mut self, command: &str, more: &str) -> Ran {
        assert!(self.commands.contains(command), "`{command}` is not in `{}`: {:#?}", self.section, self.commands);
        self.run.insert(command.to_owned());
        let fill = |text: String, (placeholder, value): &(&str, String)| text.replace(placeholder, value);
        let line = self.values.iter().fold(command.to_owned(), fill);
        ran(shell(&format!("{line}{more}")).env("USER", "ann").envs(&self.environment).output().unwrap())
    }

    /// Runs a command of the section, and asserts its exit code and that its output contains each text. Returns all that the
    /// command printed.
    pub(crate) fn ends(&mut self, command: &str, code: i32, texts: &[&str]) -> String {
        let ran = self.try_with(command, "");
        self.assert(command, &ran, code, texts)
    }

    /// Runs a command of the section that succeeds.
    pub(crate) fn shows(&mut self, command: &str, texts: &[&str]) -> String {
        self.ends(command, 0, texts)
    }

    /// Runs a command of the section that changes something. Without a confirmation, the command is refused.
    pub(crate) fn changes(&mut self, command: &str, texts: &[&str]) -> String {
        self.ends(command, 6, &["asks for a confirmation"]);
        let ran = self.try_with(command, " --yes");
        self.assert(command, &ran, 0, texts)
    }

    fn assert(&self, command: &str, ran: &Ran, code: i32, texts: &[&str]) -> String {
        let section = self.section;
        assert_eq!(ran.code, code, "`{command}` in `{section}`: {ran:?}");
        let printed = format!("{}{}", ran.out, ran.err);
        for text in texts {
            assert!(printed.contains(text), "`{command}` in `{section}` does not show `{text}`: {ran:?}");
        }
        printed
    }

    /// Returns the command of the section that has several lines.
    pub(crate) fn pipeline(&self) -> String {
        self.commands.iter().find(|command| command.contains('\n')).unwrap().clone()
    }

    /// Returns the commands of the section that were not run.
    pub(crate) fn missing(&self) -> Vec<&String> {
        self.commands.difference(&self.run).collect()
    }

    /// Ends the incident.
    pub(crate) fn end(self) {
        assert_eq!(self.missing(), Vec::<&String>::new(), "the incident of `{}` does not run these", self.section);
    }
}

/// Returns a shell that runs a line with the program in its path.
pub(crate) fn shell(line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_idempotent"));
    let path = std::env::var("PATH").unwrap();
    let mut shell = bare("sh");
    shell.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    shell.stdin(Stdio::null()).args(["-c", line]);
    shell
}
