//! Issued tokens and their storage.
use super::*;

on_both_stores! {
    an_unused_token_is_good_for_its_ttl_and_not_longer
    while_the_store_is_down_no_token_is_issued
    a_token_with_a_lost_record_is_not_issued
}

#[tokio::test]
async fn a_token_is_192_random_bits_in_32_characters_of_base64url() {
    let executor = Executor::new(idempotent::MemoryStore::new());
    let tokens = Tokens::new(&executor);
    let mut seen = std::collections::BTreeSet::new();
    let mut bits = [[0_u32; 6]; 32];
    for _ in 0..256 {
        let token = tokens.issue("u").await.unwrap();
        let text = token.as_str().to_owned();
        assert_eq!(text.len(), 32, "24 bytes, no padding");
        for (place, byte) in text.bytes().enumerate() {
            const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let value = ALPHABET.iter().position(|known| *known == byte).unwrap();
            (0..6).for_each(|bit| bits[place][bit] += u32::from(value >> bit & 1 == 1));
        }
        assert!(seen.insert(text), "drawn twice");
    }
    // Each bit is 128 of 256 times one; below 64 or above 192 is as good as impossible, in any place.
    let stuck = bits.as_flattened().iter().filter(|ones| !(64..192).contains(*ones)).count();
    assert_eq!(stuck, 0, "all 192 bits are random");
}

#[test]
fn a_token_is_shown_by_nothing_but_its_text() {
    crate::common::on_memory(async |world| {
        let (worker, tokens) = desk(&world, "a", Policy::new().max_retries(0).display_key(DisplayKey::Full));
        let token = tokens.issue("user-7").await.unwrap();
        let job = Job::ends(ms(0), End::Err);
        let mut shown = vec![format!("{token:?} {tokens:?} {:?}", tokens.call(&token, "user-7"))];
        for caller in ["user-7", "user-7", "user-8"] {
            let (outcome, answer) = worker.deliver_call(tokens.call(&token, caller), &job).await;
            shown.push(format!("{outcome:?} {answer:?} {}", answer.as_ref().unwrap_err()));
        }
        assert_eq!(shown.len(), 4);
        // A dead record is for operators to look at: not even there.
        let dead = world.store.log().into_iter().filter_map(|call| match call.applied {
            Some(idempotent_testkit::StoreAnswer::Peeked(Some(record))) => Some(record),
            _ => None,
        });
        let dead: Vec<_> = dead.collect();
        assert!(dead.iter().any(|record| record.state.kind() == StateKind::Dead), "{dead:?}");
        assert!(dead.iter().all(|record| record.display.is_none()), "{dead:?}");
        shown.push(format!("{:?}", world.store.log()));
        for text in shown {
            assert!(!text.contains(token.as_str()), "{text}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    });
}

async fn an_unused_token_is_good_for_its_ttl_and_not_longer(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    assert_eq!(TTL, secs(600), "10 minutes");
    let short = tokens.clone().ttl(secs(1));
    for (tokens, ttl) in [(tokens, TTL), (short, secs(1))] {
        let job = Job::takes(ms(0));
        let (early, late) = (tokens.issue("u").await.unwrap(), tokens.issue("u").await.unwrap());
        world.clock.advance(ttl - ms(1)).await;
        assert_eq!(worker.deliver_call(tokens.call(&early, "u"), &job).await.0, Outcome::Ran);
        world.clock.advance(ms(1)).await;
        let before = writes(&world);
        let (outcome, answer) = worker.deliver_call(tokens.call(&late, "u"), &job).await;
        assert!(matches!(rejection(answer), Rejection::UnknownToken));
        assert_eq!((outcome, job.runs(), writes(&world)), (Outcome::BadKey, 1, before));
    }
}

async fn while_the_store_is_down_no_token_is_issued(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    for verb in [StoreOperation::Claim, StoreOperation::Release] {
        worker.store.fail_before(verb, 1);
        let error = tokens.issue("u").await.unwrap_err();
        let Rejection::Store(error) = error else { panic!("{error:?}") };
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{verb:?}");
    }
    worker.store.hang(StoreOperation::Claim, 1);
    let waits = tokio::spawn({
        let tokens = tokens.clone();
        async move { tokens.issue("u").await.map(drop) }
    });
    world.clock.advance(secs(11)).await;
    let error = waits.await.unwrap().unwrap_err();
    assert!(matches!(&error, Rejection::Store(error) if error.kind() == StoreErrorKind::Ambiguous), "{error:?}");
    assert!(matches!(tokens.issue("").await, Err(Rejection::Key(_))), "bound to nobody");
    tokens.issue("u").await.unwrap();
}

/// The claim's reply came so late that its lease was over: what was to be put down is gone.
async fn a_token_with_a_lost_record_is_not_issued(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    worker.store.delay(StoreOperation::Release, secs(9));
    worker.store.delay_reply(StoreOperation::Claim, secs(9));
    let issued = tokio::spawn(async move { tokens.issue("u").await.map(drop) });
    world.clock.advance(secs(20)).await;
    let error = issued.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("issue a token: the store took too long"), "{error}");
}
