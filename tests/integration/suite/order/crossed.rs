use super::*;
use idempotent::{Identity, Scene};

on_all_stores! {
    one_business_comes_after_another
    chains_of_two_tenants_are_two_chains
    a_run_inside_its_predecessor_is_refused_by_name
}

async fn one_business_comes_after_another(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let payment = Identity::new(Scene::Mq, "payments", "o-17");
    let deliver = |by_key: bool| {
        let points = Call::new(Identity::new(Scene::Mq, "points", "o-17"));
        match by_key {
            true => points.after(&payment.key("idempotent").unwrap()),
            false => points.after(&Some(&payment)),
        }
    };
    for by_key in [true, false] {
        assert_waiting(&worker.deliver_call(deliver(by_key), &job).await.0);
    }
    assert_eq!(worker.deliver_call(Call::new(payment.clone()), &job).await.0, Outcome::Ran);
    assert_eq!(worker.deliver_call(deliver(true), &job).await.0, Outcome::Ran);
    assert_eq!(worker.deliver_call(deliver(false), &job).await.0, Outcome::Replayed);
}

async fn chains_of_two_tenants_are_two_chains(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let of = |tenant: &str, number: u64| {
        Call::new(id(&number.to_string()).tenant(tenant)).after(&number.checked_sub(1).filter(|before| *before > 0))
    };
    assert_eq!(worker.deliver_call(of("ann", 1), &job).await.0, Outcome::Ran);
    assert_waiting(&worker.deliver_call(of("bob", 2), &job).await.0);
    assert_eq!(worker.deliver_call(of("ann", 2), &job).await.0, Outcome::Ran);
}

async fn a_run_inside_its_predecessor_is_refused_by_name(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let inner = worker.clone();
    let handler = PlainHandler::new(|| async move {
        let (outcome, answer) = inner.deliver_call(after("2", "1"), &job).await;
        assert_eq!(outcome, Outcome::Nested);
        assert!(answer.unwrap_err().to_string().contains("`work` already runs with this key"));
        Ok::<_, Rejection>(job.runs())
    });
    assert_eq!(worker.executor.run(Call::new(id("1")), handler).await.unwrap(), 0);
}
