//! The HTTP forms of a call, and their treatment.
use crate::support::{Raw, TEA, World};

/// The treatment of two equal requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The method runs once, and the second caller receives a replay.
    Once,
    /// The method runs each time.
    Each,
    /// Both are refused, with this gRPC status and this HTTP status.
    Refused(&'static str, u16),
}
use Outcome::{Each, Once, Refused};

const NO_KEY: Outcome = Refused("3", 200);
const OTHER_METHOD: Outcome = Refused("3", 405);
const OTHER_TYPE: Outcome = Refused("3", 415);
const UNTRANSLATED: Outcome = Refused("13", 200);

/// A form: the HTTP method, the lines of the content type, and the outcomes.
struct Form {
    method: &'static str,
    types: &'static [&'static [&'static str]],
    /// The outcomes for a method in `require_key`: with a key, and without one.
    required: [Outcome; 2],
    /// The outcomes for another method: with a key, and without one.
    other: [Outcome; 2],
}

const GRPC: &[&[&str]] = &[
    &["application/grpc"],
    &["application/grpc+proto"],
    &["application/grpc+json"],
    &["application/grpc;charset=utf-8"],
    &["application/grpc ; charset=utf-8"],
    &["application/GRPC"],
    &["APPLICATION/Grpc+Proto"],
    &["text/plain", "application/grpc"],
];
const GRPC_WEB: &[&[&str]] = &[
    &["application/grpc-web"],
    &["application/grpc-web+proto"],
    &["application/grpc-web-text"],
    &["application/Grpc-WEB"],
    &["application/grpc", "application/grpc-web"],
];
const NO_GRPC: &[&[&str]] =
    &[&[], &[""], &["text/plain"], &["application/json"], &["application/grpcx"], &["x application/grpc"]];

const FORMS: [Form; 11] = [
    Form { method: "POST", types: GRPC, required: [Once, NO_KEY], other: [Once, Each] },
    Form { method: "POST", types: GRPC_WEB, required: [UNTRANSLATED; 2], other: [UNTRANSLATED, Each] },
    Form { method: "POST", types: NO_GRPC, required: [OTHER_TYPE; 2], other: [Each, Each] },
    Form { method: "PUT", types: GRPC, required: [OTHER_METHOD; 2], other: [OTHER_METHOD, Each] },
    Form { method: "PATCH", types: GRPC, required: [OTHER_METHOD; 2], other: [OTHER_METHOD, Each] },
    Form { method: "GET", types: GRPC, required: [OTHER_METHOD; 2], other: [OTHER_METHOD, Each] },
    Form { method: "OPTIONS", types: GRPC, required: [OTHER_METHOD; 2], other: [OTHER_METHOD, Each] },
    // Names of methods have a case.
    Form { method: "post", types: GRPC, required: [OTHER_METHOD; 2], other: [OTHER_METHOD, Each] },
    Form { method: "PUT", types: NO_GRPC, required: [OTHER_METHOD; 2], other: [Each, Each] },
    Form { method: "GET", types: NO_GRPC, required: [OTHER_METHOD; 2], other: [Each, Each] },
    Form { method: "OPTIONS", types: NO_GRPC, required: [OTHER_METHOD; 2], other: [Each, Each] },
];

/// Sends two equal requests.
async fn outcome(world: &World, method: &str, types: &[&str], key: Option<&str>) -> Outcome {
    let types = types.iter().map(|kind| ("content-type", *kind));
    let headers: Vec<_> = types.chain(key.map(|key| ("idempotency-key", key))).collect();
    let before = world.shop.runs();
    let mut sent = Vec::new();
    for _ in 0..2 {
        sent.push(world.raw_by(method, "/shop.Orders/Pay", &headers, TEA).await);
    }
    let replays: Vec<_> = sent.iter().map(|raw| raw.headers.contains_key("idempotent-replayed")).collect();
    match (world.shop.runs() - before, &replays[..]) {
        (0, [false, false]) => refusal(&sent),
        (1, [false, true]) => Once,
        (2, [false, false]) => Each,
        (runs, _) => panic!("{method} {headers:?}: {runs} runs: {sent:?}"),
    }
}

fn refusal(sent: &[Raw]) -> Outcome {
    let expected = &sent[0];
    assert_eq!(expected, &sent[1]);
    assert!(expected.body.is_empty(), "{expected:?}");
    assert_eq!(expected.headers.get("allow").is_some_and(|allow| allow == "POST"), expected.http_status == 405);
    let status = match expected.status() {
        Some("3") => "3",
        Some("13") => "13",
        other => panic!("{other:?}: {expected:?}"),
    };
    Refused(status, expected.http_status)
}

#[tokio::test]
async fn each_form_of_a_call_has_the_outcome_of_the_table() {
    let required = World::with(|layer| layer.require_key(["/shop.Orders/Pay"])).await;
    let of_service = World::with(|layer| layer.require_key(["/shop.Orders/*"])).await;
    let other = World::with(|layer| layer.require_key(["/shop.Orders/Watch"])).await;
    let mut wrong = Vec::new();
    for (number, form) in FORMS.iter().enumerate() {
        for (kind, types) in form.types.iter().enumerate() {
            let key = format!("{number}-{kind}");
            for (world, expected) in [(&required, form.required), (&of_service, form.required), (&other, form.other)] {
                let with_key = outcome(world, form.method, types, Some(&key)).await;
                let found = [with_key, outcome(world, form.method, types, None).await];
                if found != expected {
                    wrong.push(format!("{} {types:?}: {found:?}, not {expected:?}", form.method));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
