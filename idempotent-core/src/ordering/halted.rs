//! The error texts of dead calls, including calls that were halted before they ran.
use crate::BrokenOrder;

/// The prefix that marks a call as halted without a run. The record has no other sign of that: its attempt count
/// includes the claim that halted the call.
const HALTED: &str = "halted before it ran";

/// Builds the error text for the record of a halted call. `waited_for` describes its predecessor. `granted` is the
/// number of its claims so far, including this one.
pub(crate) fn halted(why: BrokenOrder, waited_for: &str, granted: u32) -> String {
    let again = if granted > 1 { " again" } else { "" };
    let remedy = match why {
        BrokenOrder::Failed | BrokenOrder::Dead => {
            "repair the predecessor: forget its key (`Admin::forget`) and send it again, and then do the same with this one"
        }
        BrokenOrder::Missing => {
            "send the predecessor, forget the key of this one (`Admin::forget`), and send this one again"
        }
        BrokenOrder::Late => {
            "if it may still run, set `on_late = run`, forget its key (`Admin::forget`), and send it again"
        }
    };
    format!("{HALTED}{again}: {why} ({waited_for}); {remedy}")
}

/// Builds the error text of a dead call from its record. A handler's own error with the prefix of a halted call is
/// shown without the number of runs.
pub(crate) fn given_up(runs: u32, error: &str) -> String {
    match runs {
        _ if error.starts_with(HALTED) => error.to_owned(),
        1 => format!("given up after 1 run: {error}"),
        runs => format!("given up after {runs} runs: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halted_call_shows_the_remedy_and_no_number_of_runs() {
        for (why, remedy) in [
            (BrokenOrder::Failed, "repair the predecessor"),
            (BrokenOrder::Dead, "repair the predecessor"),
            (BrokenOrder::Missing, "send the predecessor"),
            (BrokenOrder::Late, "on_late = run"),
        ] {
            let text = given_up(1, &halted(why, "it comes after x", 1));
            assert!(text.starts_with(&format!("halted before it ran: {why} (it comes after x); ")), "{text}");
            assert!(text.contains(remedy) && !text.contains("given up"), "{text}");
        }
        let ran = given_up(2, &halted(BrokenOrder::Missing, "", 2));
        assert!(ran.starts_with("halted before it ran again: "), "{ran}");
    }

    #[test]
    fn a_dead_call_shows_the_number_of_its_runs() {
        let texts = [0, 1, 17].map(|runs| given_up(runs, "no stock"));
        assert_eq!(texts, ["0 runs", "1 run", "17 runs"].map(|runs| format!("given up after {runs}: no stock")));
    }
}
