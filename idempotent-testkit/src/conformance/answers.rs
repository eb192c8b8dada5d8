//! Assertions of laws. The message shows the answer of the store, the answer of the protocol, and the reason.

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
