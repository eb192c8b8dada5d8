//! The example `dynamodb`, from outside, on a private emulator.
use idempotent_harness::servers::MotoServer;

use crate::example::run;

#[test]
fn another_process_gets_the_receipt_of_the_first_one() {
    let server = MotoServer::start();
    let endpoint = format!("--endpoint=http://{}", server.address());
    let first = run("dynamodb", &["eu-west-1", &endpoint, "o-17", "o-17"]);
    let [ran, replayed] = first.lines().collect::<Vec<_>>()[..] else { panic!("{first}") };
    assert_eq!(replayed, ran.replace("(ran)", "(replayed)"));
    let second = run("dynamodb", &["eu-west-1", &endpoint, "o-17", "o-18"]);
    let [duplicate, other] = second.lines().collect::<Vec<_>>()[..] else { panic!("{second}") };
    assert_eq!(duplicate, replayed);
    assert!(other.starts_with("receipt o-18-") && other.ends_with(" (ran)"), "{second}");
}
