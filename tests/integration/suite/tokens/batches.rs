//! Batches: tokens in them, and duplicates that are refused.
use idempotent::BatchItem;

use super::*;
use crate::common::{PlainHandler, id};

on_both_stores! {
    a_token_in_a_batch_is_looked_for_as_alone
    a_duplicate_inside_a_batch_is_refused_where_the_policy_says_so
    a_duplicate_of_an_earlier_delivery_is_refused_at_every_place
    a_duplicate_of_a_place_that_failed_comes_back_later_with_its_message
}

/// Runs a batch. Returns the outcome and the answer of each item, and the number of items that the handler received.
async fn batch(worker: &Worker, calls: Vec<Call>, fails: bool) -> (Vec<Outcome>, Vec<Result<u32, AppError>>, usize) {
    let given = Arc::new(std::sync::Mutex::new(0));
    let handler = PlainHandler::batch({
        let given = given.clone();
        move |items: Vec<BatchItem<()>>| async move {
            *given.lock().unwrap() = items.len();
            items.iter().map(|_| if fails { Err(AppError::NoStock) } else { Ok(7) }).collect()
        }
    });
    let answers = worker.executor.run_batch(calls.into_iter().map(|call| (call, ())).collect(), handler).await;
    let (outcomes, outputs) = answers.into_iter().map(|answer| (answer.outcome, answer.output)).unzip();
    let given = *given.lock().unwrap();
    (outcomes, outputs, given)
}

fn refusing(key: &str) -> Call {
    let policy = Policy::new().on_consumed(idempotent::OnConsumed::Refuse).window(secs(5));
    Call::new(id(key)).policy(policy).message("sent already")
}

async fn a_token_in_a_batch_is_looked_for_as_alone(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let token = tokens.issue("u").await.unwrap();
    let calls = || vec![tokens.call("made up", "u"), tokens.call(&token, "u"), tokens.call(&token, "v")];
    let (outcomes, outputs, given) = batch(&worker, calls(), false).await;
    assert_eq!((outcomes, given), (vec![Outcome::BadKey, Outcome::Ran, Outcome::BadKey], 1));
    for (at, output) in outputs.into_iter().enumerate().filter(|(at, _)| *at != 1) {
        assert!(matches!(rejection(output), Rejection::UnknownToken), "{at}");
    }
    let (outcomes, _, given) = batch(&worker, calls(), false).await;
    assert_eq!((outcomes, given), (vec![Outcome::BadKey, Outcome::Duplicate, Outcome::BadKey], 0));
    assert_eq!(world.asked(StoreOperation::Claim).len(), 3, "at issue, and once for each batch");
}

async fn a_duplicate_inside_a_batch_is_refused_where_the_policy_says_so(world: World) {
    let (worker, _) = desk(&world, "a", Policy::new());
    let calls = vec![refusing("k"), refusing("k"), Call::new(id("k")), Call::new(id("l")), Call::new(id("l"))];
    let (outcomes, mut outputs, given) = batch(&worker, calls, false).await;
    let wanted = [Outcome::Ran, Outcome::Duplicate, Outcome::Replayed, Outcome::Ran, Outcome::Replayed];
    assert_eq!((outcomes, given), (wanted.to_vec(), 2));
    let told = rejection(outputs.swap_remove(1));
    let Rejection::Duplicate { retry_after: Some(rest), .. } = told else { panic!("{told:?}") };
    assert_eq!((rest, told.to_string()), (secs(5), "sent already".to_owned()));
    let counts = worker.executor.counts();
    assert_eq!((counts.deliveries(), counts.ended(), counts.of("duplicate")), (5, 5, 1));
}

async fn a_duplicate_of_an_earlier_delivery_is_refused_at_every_place(world: World) {
    let (worker, _) = desk(&world, "a", Policy::new());
    batch(&worker, vec![refusing("k")], false).await;
    world.clock.advance(secs(2)).await;
    let other_payload = refusing("k").fingerprint(Ok(idempotent::Fingerprint::of_bytes("other")));
    let calls = vec![refusing("k"), refusing("k"), other_payload, Call::new(id("k"))];
    let (outcomes, outputs, given) = batch(&worker, calls, false).await;
    let duplicate = Outcome::Duplicate;
    assert_eq!(outcomes, [duplicate.clone(), duplicate.clone(), duplicate, Outcome::Replayed]);
    assert_eq!(given, 0);
    for output in outputs.into_iter().take(3) {
        let told = rejection(output);
        assert!(matches!(told, Rejection::Duplicate { retry_after: Some(rest), .. } if rest == secs(3)), "{told:?}");
    }
}

async fn a_duplicate_of_a_place_that_failed_comes_back_later_with_its_message(world: World) {
    let (worker, _) = desk(&world, "a", Policy::new());
    let (outcomes, mut outputs, _) = batch(&worker, vec![refusing("k"), refusing("k")], true).await;
    assert!(matches!(outcomes[0], Outcome::Released { .. }), "{outcomes:?}");
    assert_in_flight(&outcomes[1]);
    assert_eq!(rejection(outputs.swap_remove(1)).to_string(), "sent already");
}
