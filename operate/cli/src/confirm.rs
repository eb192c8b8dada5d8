//! Confirmation by the user.
use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks the user on stderr, and returns an error unless the answer is `yes`.
///
/// # Errors
/// The user declined, or stdin is no terminal.
pub(crate) async fn confirm(question: &str) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() {
        let why = "the command asks for a confirmation, but stdin is no terminal: pass --yes";
        return Err(Failure::Refused(why.into()).into());
    }
    let mut stderr = io::stderr();
    let asked = write!(stderr, "{question} Type `yes` to continue: ").and_then(|()| stderr.flush());
    // Not passed on: the error of a closed pipe means a success of a command that printed.
    asked.map_err(|error| Failure::Refused(format!("the command cannot ask for a confirmation on stderr: {error}")))?;
    // On another thread, so that signals and --timeout end the wait.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    Ok(accepted(&answer.await??)?)
}

fn accepted(answer: &str) -> Result<(), Failure> {
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::Refused("declined, nothing was changed".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms() {
        assert!(accepted("yes\n").is_ok());
        for answer in ["", "\n", "y\n", "no\n"] {
            assert!(accepted(answer).is_err(), "{answer:?}");
        }
    }
}
