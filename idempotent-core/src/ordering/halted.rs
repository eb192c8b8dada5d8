//! What is told of a call that is dead; of one that was buried before its turn came, too, which has no runs to count.
use crate::BrokenOrder;

/// How the text begins of a call that was buried without a run. The record says so nowhere else: its attempts count the
/// claim that buried it.
const HALTED: &str = "halted before it ran";

/// What stands in the record of a call that is buried without a run. `waited_for` names what it comes after; `granted` are
/// the claims of it so far, this one included.
pub(crate) fn halted(why: BrokenOrder, waited_for: &str, granted: u32) -> String {
    let again = if granted > 1 { " again" } else { "" };
    let remedy = match why {
        BrokenOrder::Failed | BrokenOrder::Dead => {
            "put that right: make it claimable again (`Admin::forget`) and send it, then likewise this one"
        }
        BrokenOrder::Missing => "send that one, then make this one claimable again (`Admin::forget`) and send it",
        BrokenOrder::Late => {
            "where it may run all the same, set `on_late = run`, make it claimable again (`Admin::forget`) and send it"
        }
    };
    format!("{HALTED}{again}: {why} ({waited_for}); {remedy}")
}

/// What is told of a call that is dead, by what stands in its record. A handler's own error that began like the text of a
/// halted call would be told without a number.
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
    fn who_never_ran_is_given_no_number_of_runs_and_the_remedy() {
        for (why, remedy) in [
            (BrokenOrder::Failed, "then likewise this one"),
            (BrokenOrder::Dead, "then likewise this one"),
            (BrokenOrder::Missing, "send that one"),
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
    fn runs_are_counted_in_plain_words() {
        let told = [0, 1, 17].map(|runs| given_up(runs, "no stock"));
        assert_eq!(told, ["0 runs", "1 run", "17 runs"].map(|runs| format!("given up after {runs}: no stock")));
    }
}
