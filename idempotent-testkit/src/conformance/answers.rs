//! What a law says when it is broken: what the store did, what the protocol says, and why.

/// As `assert_eq!`, for an answer of the store; the sentence says why it is to be so.
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

/// As [`answers!`], for an answer of this form.
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
