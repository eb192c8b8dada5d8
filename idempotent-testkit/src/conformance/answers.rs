//! Assertions of laws. The message shows the answer of the store, the answer of the protocol, and the reason.

/// The reasons that several laws give.
pub(crate) const HELD: &str = "who holds the key may settle it";
pub(crate) const NOT_HELD: &str = "a caller that does not hold the key gets the current state, and changes nothing";
pub(crate) const IN_FLIGHT: &str = "another one holds the key, and its lease is not over";
pub(crate) const FIRST_RESULT: &str = "the key is consumed, and answers with its first result";

/// Asserts like `assert_eq!` that the store gave this answer. The sentence is the reason.
macro_rules! answers {
    ($got:expr, $want:expr, $($why:tt)+) => {
        match (&$got, &$want) {
            (got, want) => {
                if *got != *want {
                    panic!("the store answered {got:?}, the protocol says {want:?}: {}", format_args!($($why)+));
                }
            }
        }
    };
}

/// Asserts like [`answers!`] that the answer has this form.
macro_rules! answers_like {
    ($got:expr, $want:pat, $($why:tt)+) => {
        match &$got {
            $want => {}
            got => {
                let want = stringify!($want);
                panic!("the store answered {got:?}, the protocol says {want}: {}", format_args!($($why)+));
            }
        }
    };
}

pub(crate) use {answers, answers_like};
