//! Ordering: `after = …`, `sequence = (stream, number)`, and the rules for calls whose predecessor will not be
//! consumed.
use syn::{Error, Expr, ExprCall, ExprLit, Lit, Result};

use super::{KeySource, OrderPosition, SettingValue, longest, not_empty, word};
use crate::parse::AttributeArgs;
use crate::suggest::{any_of, did_you_mean};
use crate::units::millis;

/// The words of `on_broken_order`, their variants, and the effect of their times.
const CHOICES: [(&str, &str, &str); 3] = [
    ("hold", "Hold", "after which a call whose predecessor was never seen is reported"),
    ("skip", "Skip", "after which the call runs anyway"),
    ("halt", "Halt", "after which a predecessor that was never seen counts as lost"),
];

pub(super) fn check(args: &AttributeArgs, by: &KeySource) -> Result<Option<OrderPosition>> {
    let position = match (&args.after, &args.sequence) {
        (Some(_), Some(sequence)) => {
            let text = "`after` and `sequence` both name the predecessor of this call: leave one of them out";
            return Err(Error::new_spanned(sequence, text));
        }
        (Some(after), None) => {
            not_empty("after", after)?;
            OrderPosition::After(after.clone())
        }
        (None, Some(sequence)) => in_line(sequence)?,
        (None, None) => return alone(args),
    };
    if let (OrderPosition::After(_), Some(late)) = (&position, &args.on_late) {
        let text =
            "`on_late` applies to the numbers of a `sequence = (stream, number)`, which is missing: leave it out";
        return Err(Error::new_spanned(late, text));
    }
    let (name, expr) = position.argument();
    if !matches!(by, KeySource::Key | KeySource::Strategy(_)) {
        let text = match position {
            OrderPosition::After(_) => {
                "`after` names a call by its key, and calls of `by = token` and `by = param` have none that another call \
                 could name: give them a `key`, or leave `after` out"
            }
            OrderPosition::Sequence(..) => {
                "the calls of `by = token` and `by = param` come from clients that do not number them: give them a `key`, or \
                 leave `sequence` out"
            }
        };
        return Err(Error::new_spanned(expr, text));
    }
    match args.on_store_error.as_ref().and_then(word).filter(|word| *word == "run_unprotected") {
        Some(unprotected) => Err(Error::new_spanned(
            unprotected,
            format!("an order needs the store: remove `on_store_error` or `{name}`"),
        )),
        None => Ok(Some(position)),
    }
}

/// Refuses ordering settings of a call without `after` or `sequence`.
fn alone(args: &AttributeArgs) -> Result<Option<OrderPosition>> {
    let about = [
        (
            &args.on_broken_order,
            "`on_broken_order` is about the call this one comes after: say which, `after = …`, or leave it out",
        ),
        (
            &args.on_late,
            "`on_late` is about the numbers of a stream: say which, `sequence = (stream, number)`, or leave it out",
        ),
    ];
    match about.into_iter().find_map(|(value, text)| Some((value.as_ref()?, text))) {
        Some((value, text)) => Err(Error::new_spanned(value, text)),
        None => Ok(None),
    }
}

fn in_line(sequence: &Expr) -> Result<OrderPosition> {
    let form = "`sequence` is a stream and a number in it: `sequence = (user, number)`";
    let Expr::Tuple(pair) = sequence else { return Err(Error::new_spanned(sequence, form)) };
    let (Some(stream), Some(number), 2) = (pair.elems.first(), pair.elems.last(), pair.elems.len()) else {
        let text = format!("{form}; a stream of several parts is a tuple of its own: `((user, account), number)`");
        return Err(Error::new_spanned(sequence, text));
    };
    not_empty("sequence", stream)?;
    match number {
        Expr::Lit(literal) => {
            let text =
                "all calls would have this number: take it from the message, `sequence = (user, message.number)`";
            Err(Error::new_spanned(literal, text))
        }
        _ => Ok(OrderPosition::Sequence(stream.clone(), number.clone())),
    }
}

/// Refuses a bare number as a time in parentheses. `form` is the text before the parentheses.
pub(super) fn quoted(form: &str, time: &Expr) -> Result<()> {
    match time {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_digits() != "0" => {
            let digits = number.base10_digits();
            let text = format!("`{form}` takes a time in quotes: `{form}(\"10m\")`; which unit is `{digits}` in?");
            Err(Error::new_spanned(time, text))
        }
        _ => Ok(()),
    }
}

pub(super) fn on_late(value: &Expr) -> Result<SettingValue> {
    match word(value).map(ToString::to_string).as_deref() {
        Some("run") => Ok(SettingValue::Word("OnLate", "Run")),
        Some("refuse") => Ok(SettingValue::Word("OnLate", "Refuse")),
        given => {
            let meant = did_you_mean(given.unwrap_or_default(), ["run", "refuse"]);
            Err(Error::new_spanned(value, format!("`on_late` is {}{meant}", any_of(&["run", "refuse"]))))
        }
    }
}

pub(super) fn on_broken(value: &Expr) -> Result<SettingValue> {
    let wrong = |text: String| Err(Error::new_spanned(value, text));
    if let Expr::Call(ExprCall { func, args, .. }) = value
        && let Some(name) = word(func)
        && let Some((name, variant, _)) = CHOICES.iter().find(|(choice, ..)| name == choice)
        && let (1, Some(time)) = (args.len(), args.first())
    {
        quoted(&format!("on_broken_order = {name}"), time)?;
        let time = longest("on_broken_order", time, millis("on_broken_order", time)?)?;
        return Ok(SettingValue::BrokenOrder(variant, time));
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
