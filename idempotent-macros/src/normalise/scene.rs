//! The scene, and the arguments that depend on it.
use syn::{Error, Expr, ExprLit, Ident, Lit, Result};

use super::{Scene, word};
use crate::parse::AttributeArgs;
use crate::suggest::{any_of, did_you_mean};

/// Checks that `on_in_flight = ack` is for messages: an HTTP request is not resent by an outbox.
pub(super) fn acks_only_deliveries(args: &AttributeArgs, scene: &Scene) -> Result<()> {
    match (&args.on_in_flight, scene) {
        (Some(value), Scene::Rest) if word(value).is_some_and(|word| word == "ack") => Err(Error::new_spanned(
            value,
            "`on_in_flight = ack` is for messages: an outbox resends a message whose run crashed, but no one resends a \
             request; use `retry` or `wait(\"2s\")`",
        )),
        _ => Ok(()),
    }
}

/// Resolves the scene: `mq` and `rest` are words, a string names a custom scene.
pub(super) fn resolve(value: &Expr) -> Result<Scene> {
    const KNOWN: [&str; 2] = ["mq", "rest"];
    let wrong = |text: String| Err(Error::new_spanned(value, text));
    if let Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) = value {
        return match name.value().as_str() {
            "" => wrong("scene must not be empty".into()),
            known if KNOWN.contains(&known) => wrong(format!("write `scene = {known}` without quotes")),
            // `"MQ"` and `"rset"` would be custom scenes with different defaults.
            other => match KNOWN.iter().find(|known| letters(known) == letters(other)) {
                Some(known) => wrong(format!(
                    "did you mean `scene = {known}`, without quotes? A scene of your own needs another name: `{other}` is \
                     taken for `{known}`"
                )),
                None => Ok(Scene::Named(name.clone())),
            },
        };
    }
    match word(value).map(Ident::to_string).as_deref() {
        Some("mq") => Ok(Scene::Mq),
        Some("rest") => Ok(Scene::Rest),
        Some(other) => {
            let meant = did_you_mean(other, KNOWN);
            wrong(format!(
                "unknown scene `{other}`{meant}; known: {}, or a name of your own in quotes: `scene = \"{other}\"`",
                any_of(&KNOWN)
            ))
        }
        None => wrong(format!("`scene` is {}, or a name of your own in quotes: `scene = \"billing\"`", any_of(&KNOWN))),
    }
}

/// Returns the letters of a word in lower case, sorted.
fn letters(word: &str) -> Vec<char> {
    let mut letters: Vec<_> = word.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    letters.sort_unstable();
    letters
}
