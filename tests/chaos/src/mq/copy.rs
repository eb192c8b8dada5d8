//! A message, as often as it is published.
use crate::dice::Dice;
use crate::plan::Sent;
use crate::wire;

/// A copy of a message. A publisher without a confirm sends the same copy again.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// No other copy is called so.
    pub(super) name: String,
    /// The message's id, which its copies share.
    pub(super) id: String,
    /// The key, or `None` for an unreadable body.
    pub(super) key: Option<u64>,
    pub(super) body: Vec<u8>,
    /// A header of any bytes.
    pub(super) trace: Vec<u8>,
    /// True if the producer writes headers with the names of the adapter's own.
    pub(super) forged: bool,
}

/// The percentage of forged copies.
const FORGED: u64 = 3;

impl Copy {
    /// All copies of a message; all but the last at once.
    pub(super) fn of(sent: &Sent, dice: &Dice) -> Vec<Self> {
        let copies = sent.copies + u64::from(sent.late.is_some());
        (0..copies).map(|number| Self::new(sent, &number.to_string(), dice)).collect()
    }

    /// Creates the copy that a producer sends while the message's worker is stopped.
    pub(super) fn resent(sent: &Sent, dice: &Dice) -> Self {
        Self::new(sent, "resent", dice)
    }

    fn new(sent: &Sent, name: &str, dice: &Dice) -> Self {
        let key = sent.message.key;
        Self {
            name: format!("{key}.{name}"),
            id: format!("order-{key}"),
            key: Some(key),
            body: wire::line(&sent.message).into_bytes(),
            trace: bytes(dice),
            forged: dice.percent(FORGED),
        }
    }

    /// Creates a copy with an unreadable body.
    pub(super) fn undecodable(number: u64, dice: &Dice) -> Self {
        let name = format!("garbage-{number}");
        Self {
            id: name.clone(),
            name,
            key: None,
            body: [&b"{\"key\":\xff"[..], &bytes(dice)].concat(),
            trace: bytes(dice),
            forged: dice.percent(FORGED),
        }
    }
}

fn bytes(dice: &Dice) -> Vec<u8> {
    (0..dice.range(1, 40)).map(|_| u8::try_from(dice.below(256)).unwrap_or_default()).collect()
}
