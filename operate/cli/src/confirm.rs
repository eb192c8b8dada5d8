//! Confirmation by the user.
use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Failure;

/// Asks the user on stderr, and returns an error unless the answer is `yes`.
///
/// # Errors
/// The user declined, or stdin is no terminal.
pub(crate) fn confirm(question: &str) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() {
        let why = "the command asks for a confirmation, but stdin is no terminal: pass --yes";
        return Err(Failure::Refused(why.into()).into());
    }
    let mut stderr = io::stderr();
    write!(stderr, "{question} Type `yes` to continue: ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::Refused("declined, nothing was changed".into()).into()) }
}
