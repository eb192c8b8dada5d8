//! `after = …`, and what becomes of a call whose predecessor will not be consumed.
use syn::{Error, Expr, ExprCall, Result};

use super::{By, Setting, longest, not_empty, word};
use crate::parse::Args;
use crate::suggest::{any_of, did_you_mean};
use crate::units::millis;

/// The words, their variants, and what each does after a while.
const CHOICES: [(&str, &str, &str); 3] = [
    ("hold", "Hold", "after which a call whose predecessor was never seen is told of"),
    ("skip", "Skip", "after which it runs all the same"),
    ("halt", "Halt", "after which a predecessor that was never seen counts as lost"),
];

pub(super) fn check(args: &Args, by: &By) -> Result<()> {
    let Some(after) = &args.after else {
        return match &args.on_broken_order {
            Some(value) => Err(Error::new_spanned(
                value,
                "`on_broken_order` is about the call this one comes after: say which, `after = …`, or leave it out",
            )),
            None => Ok(()),
        };
    };
    not_empty("after", after)?;
    if !matches!(by, By::Key) {
        let text = "`after` names a call by its key, and the calls of `by = token` and `by = param` have none that another \
                    one could know: give them a `key`, or leave `after` out";
        return Err(Error::new_spanned(after, text));
    }
    match args.on_store_error.as_ref().and_then(word).filter(|word| *word == "run_unprotected") {
        Some(unprotected) => Err(Error::new_spanned(
            unprotected,
            "without the store nobody knows whose turn it is: leave `on_store_error` out, or `after`",
        )),
        None => Ok(()),
    }
}

pub(super) fn on_broken(value: &Expr) -> Result<Setting> {
    let wrong = |text: String| Err(Error::new_spanned(value, text));
    if let Expr::Call(ExprCall { func, args, .. }) = value
        && let Some(name) = word(func)
        && let Some((_, variant, _)) = CHOICES.iter().find(|(choice, ..)| name == choice)
        && let (1, Some(time)) = (args.len(), args.first())
    {
        let time = longest("on_broken_order", time, millis("on_broken_order", time)?)?;
        return Ok(Setting::BrokenOrder(variant, time));
    }
    let given = match value {
        Expr::Call(ExprCall { func, .. }) => word(func),
        value => word(value),
    };
    let given = given.map(ToString::to_string).unwrap_or_default();
    match CHOICES.iter().find(|(choice, ..)| *choice == given) {
        Some((choice, _, time)) => {
            wrong(format!("`{choice}` needs the time {time}: `on_broken_order = {choice}(\"10m\")`"))
        }
        None => {
            let meant = did_you_mean(&given, CHOICES.map(|(choice, ..)| choice));
            let forms = CHOICES.map(|(choice, ..)| format!("{choice}(\"10m\")"));
            wrong(format!("`on_broken_order` is {}{meant}", any_of(&forms.each_ref().map(String::as_str))))
        }
    }
}
