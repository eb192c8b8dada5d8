//! One call that succeeds, of the caller it was issued to.
use super::*;

on_both_stores! {
    a_second_use_is_reported_as_such
    a_foreign_key_sent_as_a_token_leaves_that_key_alone
    after_a_failure_or_a_panic_the_token_is_good_for_its_ttl_again
    a_made_up_or_foreign_token_is_unknown_and_leaves_no_record
    a_token_in_flight_is_in_flight
    a_token_of_a_dead_worker_is_taken_over_after_the_lease
    the_issue_is_no_attempt
    a_token_that_expires_after_its_check_runs_as_the_first_attempt
    a_token_that_is_halted_never_ran
    while_the_store_is_down_no_token_is_spent_not_even_unprotected
    a_call_that_is_dropped_while_it_looks_for_its_token_asks_for_nothing_more
    a_token_that_may_be_replayed_gives_its_result_again
    a_spent_token_is_known_as_such_whatever_window_the_executor_has_for_other_calls
}

async fn a_second_use_is_reported_as_such(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    let call = || tokens.call(&token, "u").message("sent already");
    let (outcome, answer) = worker.deliver_call(call(), &job).await;
    assert_eq!((outcome, answer.unwrap()), (Outcome::Ran, 1));
    // For as long as results are kept, which is longer than an unused token is good for.
    for later in [ms(0), TTL, secs(23 * 3600)] {
        world.clock.advance(later).await;
        let (outcome, answer) = worker.deliver_call(call(), &job).await;
        let rejection = rejection(answer);
        let Rejection::Duplicate { retry_after, .. } = &rejection else { panic!("{rejection:?}") };
        assert_eq!((outcome, *retry_after, rejection.to_string()), (Outcome::Duplicate, None, "sent already".into()));
    }
    world.clock.advance(secs(3600)).await;
    let (_, answer) = worker.deliver_call(call(), &job).await;
    assert!(matches!(rejection(answer), Rejection::UnknownToken), "forgotten, and still not good");
    assert_eq!(job.runs(), 1);
    let counts = worker.executor.counts();
    assert_eq!((counts.of("ran"), counts.of("duplicate"), counts.deliveries(), counts.ended()), (1, 3, 5, 5));
}

async fn a_token_that_expires_after_its_check_runs_as_the_first_attempt(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.clone().ttl(secs(1)).issue("u").await.unwrap(), Job::takes(ms(0)));
    worker.store.delay(StoreOperation::Claim, secs(2));
    let run = begun(&worker, tokens.call(&token, "u"), &job).await;
    world.clock.advance(secs(2)).await;
    assert_eq!((run.await.unwrap(), job.attempts()), (Outcome::Ran, vec![1]));
}

async fn a_token_that_is_halted_never_ran(world: World) {
    let policy = Policy::new().max_retries(0).on_broken_order(OnBrokenOrder::Halt(secs(9)));
    let (worker, tokens) = desk(&world, "a", policy);
    let token = tokens.issue("u").await.unwrap();
    let first = Identity::new(Scene::Rest, "orders", "first");
    let (outcome, _) = worker.deliver_call(Call::new(first.clone()), &Job::ends(ms(0), End::Err)).await;
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let (_, answer) = worker.deliver_call(tokens.call(&token, "u").after(&first), &Job::takes(ms(0))).await;
    let told = rejection(answer);
    assert!(matches!(told, Rejection::Dead { attempts: 1, .. }), "{told:?}");
    assert!(told.to_string().starts_with("halted before it ran: "), "{told}");
}

async fn a_spent_token_is_known_as_such_whatever_window_the_executor_has_for_other_calls(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new().window(secs(5)));
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    worker.deliver_call(tokens.call(&token, "u"), &job).await.1.unwrap();
    world.clock.advance(secs(23 * 3600)).await;
    let (outcome, answer) = worker.deliver_call(tokens.call(&token, "u"), &job).await;
    assert!(matches!(rejection(answer), Rejection::Duplicate { retry_after: None, .. }), "{outcome:?}");
    assert_eq!(job.runs(), 1);
}

/// A client cannot delete a foreign key by sending the key as a token, even with the same scope, scene and tenant.
async fn a_foreign_key_sent_as_a_token_leaves_that_key_alone(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new().max_retries(3));
    let foreign = |key: &str| Identity::new(Scene::Rest, Tokens::SCOPE, key).tenant("u");
    let (ok, err) = (Job::takes(ms(0)), Job::ends(ms(0), End::Err));
    drop(worker.deliver_call(Call::new(foreign("consumed")), &ok).await);
    drop(worker.deliver_call(Call::new(foreign("vacant")), &err).await);
    let running = begun(&worker, Call::new(foreign("consuming")), &Job::takes(secs(9))).await;
    for (key, kind) in
        [("consumed", StateKind::Consumed), ("vacant", StateKind::Vacant), ("consuming", StateKind::Consuming)]
    {
        let stored = foreign(key).key("idempotent").unwrap();
        let before = world.store.peek(&stored).await.unwrap().unwrap();
        assert_eq!(before.state.kind(), kind);
        for name in [key, stored.as_str()] {
            let asked = writes(&world);
            let (outcome, answer) = worker.deliver_call(tokens.call(name, "u"), &ok).await;
            assert!(matches!(rejection(answer), Rejection::UnknownToken), "{name}");
            assert_eq!((outcome, writes(&world)), (Outcome::BadKey, asked));
        }
        assert_eq!(world.store.peek(&stored).await.unwrap().unwrap(), before, "{key} is still there, as it was");
    }
    // Nor the other way round: a token sent as a key is a key like any other.
    let token = tokens.issue("u").await.unwrap();
    assert_eq!(worker.deliver_call(Call::new(foreign(token.as_str())), &ok).await.0, Outcome::Ran);
    assert_eq!(worker.deliver_call(tokens.call(&token, "u"), &ok).await.0, Outcome::Ran);
    world.clock.advance(secs(9)).await;
    assert_eq!((running.await.unwrap(), ok.runs()), (Outcome::Ran, 3));
}

async fn after_a_failure_or_a_panic_the_token_is_good_for_its_ttl_again(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    let call = || tokens.call(&token, "u");
    world.clock.advance(TTL - ms(1)).await;
    let (outcome, answer) = worker.deliver_call(call(), &Job::ends(ms(0), End::Err)).await;
    assert!(matches!((outcome, answer), (Outcome::Released { .. }, Err(AppError::NoStock))));
    world.clock.advance(TTL - ms(1)).await;
    let panics = begun(&worker, call(), &Job::ends(ms(0), End::Panic)).await;
    assert!(panics.await.unwrap_err().is_panic());
    world.clock.advance(TTL - ms(1)).await;
    assert_eq!(worker.deliver_call(call(), &job).await.0, Outcome::Ran);
    assert_eq!(job.attempts(), [3]);

    let unused = tokens.issue("u").await.unwrap();
    drop(worker.deliver_call(tokens.call(&unused, "u"), &Job::ends(ms(0), End::Err)).await);
    world.clock.advance(TTL).await;
    let (_, answer) = worker.deliver_call(tokens.call(&unused, "u"), &job).await;
    assert!(matches!(rejection(answer), Rejection::UnknownToken), "but not longer");
    assert_eq!(job.runs(), 1);
}

async fn a_made_up_or_foreign_token_is_unknown_and_leaves_no_record(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    let elsewhere = tokens.clone().scope("elsewhere");
    let other = Executor::builder(worker.store.clone()).namespace("other").build().unwrap();
    let asked = writes(&world);
    for (what, call) in [
        ("made up", tokens.call("A".repeat(32), "u")),
        ("another caller's", tokens.call(&token, "v")),
        ("another handler's", elsewhere.call(&token, "u")),
        ("of nobody", Call::new(Identity::new(Scene::Rest, Tokens::SCOPE, &token)).issued(TTL)),
        ("another scene's", Call::new(Identity::new(Scene::Mq, Tokens::SCOPE, &token).tenant("u")).issued(TTL)),
        ("another service's", Tokens::new(&other).call(&token, "u")),
    ] {
        // The call says nothing of the namespace: the executor does.
        let by = if what == "another service's" { &other } else { &worker.executor };
        let on = Worker { executor: by.clone(), store: worker.store.clone(), clock: world.clock.clone() };
        let (outcome, answer) = on.deliver_call(call, &job).await;
        let rejection = rejection(answer);
        assert!(matches!(rejection, Rejection::UnknownToken), "{what}: {rejection:?}");
        assert_eq!(rejection.to_string(), "unknown or expired token; request a new one", "one text for all");
        assert_eq!(outcome, Outcome::BadKey, "{what}");
    }
    for missing in [tokens.call("", "u"), tokens.call(&token, None::<&str>)] {
        let (outcome, answer) = worker.deliver_call(missing, &job).await;
        assert!(matches!(rejection(answer), Rejection::Key(_)));
        assert_eq!(outcome, Outcome::BadKey);
    }
    world.clock.settle().await;
    assert_eq!((writes(&world), job.runs()), (asked, 0), "the store was asked for nothing that leaves a record");
    assert_eq!(worker.deliver_call(tokens.call(&token, "u"), &job).await.0, Outcome::Ran, "still good");
}

async fn a_token_in_flight_is_in_flight(world: World) {
    let ((a, tokens), (b, _)) = (desk(&world, "a", Policy::new()), desk(&world, "b", Policy::new()));
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(secs(3)));
    let run = begun(&a, tokens.call(&token, "u"), &job).await;
    let (outcome, answer) = b.deliver_call(tokens.call(&token, "u").message("on its way"), &job).await;
    assert_in_flight(&outcome);
    assert_eq!(rejection(answer).to_string(), "on its way");
    world.clock.advance(secs(3)).await;
    assert_eq!((run.await.unwrap(), job.runs()), (Outcome::Ran, 1));
}

async fn a_token_of_a_dead_worker_is_taken_over_after_the_lease(world: World) {
    let policy = Policy::new().lease(secs(2));
    let ((a, tokens), (b, _)) = (desk(&world, "a", policy), desk(&world, "b", policy));
    let (token, slow) = (tokens.issue("u").await.unwrap(), Job::takes(secs(60)));
    let run = begun(&a, tokens.call(&token, "u"), &slow).await;
    world.clock.advance(ms(100)).await;
    a.kill(run).await;
    let job = Job::takes(ms(0));
    assert_in_flight(&b.deliver_call(tokens.call(&token, "u"), &job).await.0);
    world.clock.advance(secs(2)).await;
    assert_eq!(b.deliver_call(tokens.call(&token, "u"), &job).await.0, Outcome::Ran);
    assert_eq!((slow.attempts(), job.attempts()), (vec![1], vec![2]));
    assert_eq!(b.deliver_call(tokens.call(&token, "u"), &job).await.0, Outcome::Duplicate);
}

async fn the_issue_is_no_attempt(world: World) {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    #[derive(Debug)]
    struct Attempts(Arc<std::sync::Mutex<Vec<Option<u32>>>>);
    impl idempotent::Observer for Attempts {
        fn on(&self, run: &idempotent::observe::RunInfo<'_>, event: &idempotent::Event<'_>) {
            if let idempotent::Event::Ended { .. } = event {
                self.0.lock().unwrap().push(run.attempt);
            }
        }
    }
    for (retries, runs) in [(0, 1), (1, 2), (2, 3)] {
        let worker = world.worker_by(&format!("{retries}"), Policy::new(), |builder| {
            let policy = Policy::new().max_retries(retries).jitter(0);
            builder.policy(Scene::Rest, policy).observer(Attempts(told.clone()))
        });
        let tokens = Tokens::new(&worker.executor);
        let (token, err) = (tokens.issue("u").await.unwrap(), Job::ends(ms(0), End::Err));
        for attempt in 1..=runs {
            let (outcome, _) = worker.deliver_call(tokens.call(&token, "u"), &err).await;
            assert_eq!(matches!(outcome, Outcome::Dead { .. }), attempt == runs, "{attempt} of {runs}: {outcome:?}");
        }
        assert_eq!(err.attempts(), (1..=runs).collect::<Vec<_>>(), "as the handler is told");
        let wanted: Vec<_> = (1..=runs).map(Some).collect();
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), wanted, "as an observer is told");
    }
}

async fn while_the_store_is_down_no_token_is_spent_not_even_unprotected(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new().on_store_error(OnStoreError::RunUnprotected));
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    // Whichever of the two questions is not answered.
    for verb in [StoreOperation::Peek, StoreOperation::Claim] {
        worker.store.fail_before(verb, FOREVER);
        let run = begun(&worker, tokens.call(&token, "u"), &job).await;
        world.clock.advance(secs(1)).await;
        assert_eq!(run.await.unwrap(), Outcome::StoreDown(StoreErrorKind::NotApplied), "{verb:?}");
        worker.store.heal();
    }
    worker.store.hang(StoreOperation::Peek, 1);
    let run = begun(&worker, tokens.call(&token, "u"), &job).await;
    world.clock.advance(secs(10)).await;
    assert_eq!(run.await.unwrap(), Outcome::StoreDown(StoreErrorKind::Ambiguous), "a third of the lease is enough");
    assert_eq!(job.runs(), 0);
    assert_eq!(worker.deliver_call(tokens.call(&token, "u"), &job).await.0, Outcome::Ran, "it was not spent");
}

async fn a_call_that_is_dropped_while_it_looks_for_its_token_asks_for_nothing_more(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    worker.store.hang(StoreOperation::Peek, 1);
    let run = begun(&worker, tokens.call(&token, "u"), &job).await;
    let asked = writes(&world);
    run.abort();
    run.await.unwrap_err();
    world.clock.settle().await;
    assert_eq!(writes(&world), asked, "there is nothing to take back");
    assert_eq!(worker.deliver_call(tokens.call(&token, "u"), &job).await.0, Outcome::Ran);
    assert_eq!(job.attempts(), [1]);
}

async fn a_token_that_may_be_replayed_gives_its_result_again(world: World) {
    let (worker, tokens) = desk(&world, "a", Policy::new());
    let (token, job) = (tokens.issue("u").await.unwrap(), Job::takes(ms(0)));
    let call = || tokens.call(&token, "u").policy(Policy::new());
    for outcome in [Outcome::Ran, Outcome::Replayed] {
        let told = worker.deliver_call(call(), &job).await;
        assert_eq!((told.0, told.1.unwrap()), (outcome, 1));
    }
    assert_eq!(worker.deliver_call(tokens.call(&token, "v").policy(Policy::new()), &job).await.0, Outcome::BadKey);
}
