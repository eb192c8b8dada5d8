//! Tokens, and requests without a key.
use std::time::Duration;

use idempotent_core::Tokens;
use idempotent_tower::{Caller, IdempotencyLayer};

use super::{by_user, executor, row};
use crate::Expected::{Problem, Ran, Replayed};
use crate::{Ask, Row};

const DUPLICATE: crate::Expected = Problem(409, "duplicate-request");

fn by_token(token: &str) -> Ask {
    Ask::post("/orders").header("x-idempotent-token", token)
}

pub(super) async fn rows() -> Vec<Row> {
    let tokens = Tokens::new(&executor());
    let mut issued = Vec::new();
    for caller in [Caller::anonymous(), Caller::anonymous(), Caller::named("ann"), Caller::anonymous()] {
        issued.push(tokens.issue(&caller).await.unwrap().as_str().to_owned());
    }
    let [first, failing, of_ann, replayed] = &issued[..] else { unreachable!("four were issued") };
    // A long window, so that a pause of the machine does not end it.
    let by_param = || IdempotencyLayer::by_param(executor(), by_user()).window(Duration::from_secs(3_600));
    vec![
        row(
            "a token is valid once, for its caller, and again after a failure",
            IdempotencyLayer::by_token(tokens.clone(), by_user()),
            4,
            vec![
                (Ask::post("/orders"), Problem(400, "missing-token")),
                (by_token("made-up"), Problem(409, "unknown-token")),
                (by_token(first), Ran(1)),
                (by_token(first).body("other"), DUPLICATE),
                (by_token(of_ann), Problem(409, "unknown-token")),
                (by_token(of_ann).user("ann"), Ran(2)),
                (by_token(failing).header("x-status", "500"), Ran(3)),
                (by_token(failing), Ran(4)),
            ],
        ),
        row(
            "the second use of a token can be a replay",
            IdempotencyLayer::by_token(tokens, by_user()).replay(true),
            1,
            vec![(by_token(replayed), Ran(1)), (by_token(replayed), Replayed(1))],
        ),
        row(
            "equal requests within the window are duplicates",
            by_param().message("too fast"),
            4,
            vec![
                (Ask::post("/orders"), Ran(1)),
                (Ask::post("/orders"), DUPLICATE),
                (Ask::post("/orders").body("other"), Ran(2)),
                (Ask::post("/orders").user("ann"), Ran(3)),
                (Ask::post("/baskets"), Ran(4)),
            ],
        ),
        row(
            "equal requests within the window can be replayed, and a failure is not one",
            by_param().replay(true),
            2,
            vec![
                (Ask::post("/orders").header("x-status", "500"), Ran(1)),
                (Ask::post("/orders"), Ran(2)),
                (Ask::post("/orders"), Replayed(2)),
            ],
        ),
    ]
}
