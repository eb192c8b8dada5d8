//! The actions of an operator and their entries.
use idempotent_core::{FencingToken, Key};
use idempotent_mq::LetterId;

use crate::access::Role;

/// A change that the console can make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Forget,
    Release,
    Redrive,
    Discard,
    #[cfg(feature = "__outbox")]
    Resend,
    #[cfg(feature = "__outbox")]
    Void,
}

impl Action {
    const ALL: &[Self] = &[
        Self::Forget,
        Self::Release,
        Self::Redrive,
        Self::Discard,
        #[cfg(feature = "__outbox")]
        Self::Resend,
        #[cfg(feature = "__outbox")]
        Self::Void,
    ];

    /// Returns the action of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.name() == name)
    }

    /// Returns the name in forms and in the audit log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forget => "forget",
            Self::Release => "release",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            #[cfg(feature = "__outbox")]
            Self::Resend => "resend",
            #[cfg(feature = "__outbox")]
            Self::Void => "void",
        }
    }

    /// Returns the role that the action needs.
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Forget | Self::Redrive => Role::Operator,
            Self::Release | Self::Discard => Role::Admin,
            #[cfg(feature = "__outbox")]
            Self::Resend => Role::Operator,
            #[cfg(feature = "__outbox")]
            Self::Void => Role::Admin,
        }
    }

    /// Returns the consequence, for the page of the plan.
    pub(crate) fn effect(self) -> &'static str {
        match self {
            Self::Forget => "The next duplicate of each key runs the handler again.",
            Self::Release => {
                "The owner may still be running, and its effect may happen. The next duplicate runs the handler again."
            }
            Self::Redrive => "Each message returns to its queue and is delivered again.",
            Self::Discard => "Each dead letter is removed for good.",
            #[cfg(feature = "__outbox")]
            Self::Resend => "A consumer that has processed a message may receive the message once more.",
            #[cfg(feature = "__outbox")]
            Self::Void => {
                "The relay stops sending each message. A copy that a consumer has received may still take effect."
            }
        }
    }

    /// Returns whether an entry is a key with its fencing number.
    pub(crate) fn is_of_keys(self) -> bool {
        matches!(self, Self::Forget | Self::Release)
    }

    pub(crate) fn is_of_letters(self) -> bool {
        matches!(self, Self::Redrive | Self::Discard)
    }
}

/// An entry of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Entry {
    /// A key with the fencing number that the operator saw.
    Key(Key, FencingToken),
    /// A dead letter, and the text that names it and its message on pages.
    Letter(LetterId, String),
    /// The id of a message of an outbox.
    Message(String),
}

impl Entry {
    /// Parses the value of a checkbox.
    pub(crate) fn parse(action: Action, text: &str) -> Option<Self> {
        if action.is_of_letters() {
            let (id, message) = text.split_once('\t').unwrap_or((text, ""));
            let subject = if message.is_empty() { id.to_owned() } else { format!("{id} of message {message}") };
            return (!id.is_empty()).then(|| Self::Letter(id.into(), subject));
        }
        if !action.is_of_keys() {
            return (!text.is_empty()).then(|| Self::Message(text.to_owned()));
        }
        let (fencing, key) = text.split_once(' ')?;
        Some(Self::Key(Key::from_text(key)?, FencingToken(fencing.parse().ok()?)))
    }

    /// Returns the text for pages.
    pub(crate) fn subject(&self) -> &str {
        match self {
            Self::Key(key, _) => key.as_str(),
            Self::Letter(_, text) | Self::Message(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_what_its_action_changes() {
        let subject = |action, text: &str| Entry::parse(action, text).map(|entry| entry.subject().to_owned());
        let key = "idempotent:mq:orders:{LT78h0P7ZYVVAiXyIDJTIg}";
        let cases = [
            (Action::Redrive, "7\tm-1", Some("7 of message m-1")),
            (Action::Redrive, "7", Some("7")),
            (Action::Redrive, "", None),
            (Action::Resend, "m-1", Some("m-1")),
            (Action::Resend, "", None),
            (Action::Forget, &format!("9 {key}"), Some(key)),
            (Action::Forget, key, None),
            (Action::Forget, &format!("x {key}"), None),
        ];
        for (action, text, expected) in cases {
            assert_eq!(subject(action, text).as_deref(), expected, "{action:?} {text:?}");
        }
    }
}
