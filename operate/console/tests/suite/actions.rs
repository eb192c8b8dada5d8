//! Changes by plans and tasks.
use http::StatusCode;
use idempotent_core::StateKind;

use crate::site::Site;

const ANN: &str = "ann:admin";
const WHY: [(&str, &str); 1] = [("reason", "stock corrected")];

async fn dead(site: &Site) -> Vec<String> {
    site.get(ANN, "/dead").await.inputs("entry")
}

async fn state(site: &Site, entry: &str) -> Option<StateKind> {
    let key = idempotent::Key::from_text(entry.split_once(' ').unwrap().1).unwrap();
    site.store.peek(&key).await.unwrap().map(|record| record.state.kind())
}

#[tokio::test]
async fn selected_keys_are_forgotten_and_audited_and_no_other_key() {
    let site = Site::new().await;
    let entries = dead(&site).await;
    assert_eq!(entries.len(), 2);
    let plan = site.plan(ANN, "forget", &entries[..1]).await;
    assert!(plan.body.contains("<p>1 entry of") && plan.body.contains("runs the handler again"), "{}", plan.body);
    assert_eq!(state(&site, &entries[0]).await, state(&site, &entries[1]).await, "a plan changes nothing");
    let task = site.apply(ANN, &plan, &WHY).await;
    assert!(task.body.contains(">done<"), "{}", task.body);
    assert_eq!(state(&site, &entries[0]).await, Some(StateKind::Vacant));
    assert_ne!(state(&site, &entries[1]).await, Some(StateKind::Vacant));
    assert_eq!(site.audited(), [("ann".to_owned(), "forget".to_owned(), "done".to_owned())]);
    let log = site.get(ANN, "/audit").await;
    assert!(log.body.contains("stock corrected") && log.body.contains("console"), "{}", log.body);
}

#[tokio::test]
async fn a_second_click_starts_nothing_and_shows_the_same_results() {
    let site = Site::new().await;
    let plan = site.plan(ANN, "forget", &dead(&site).await).await;
    let first = site.apply(ANN, &plan, &WHY).await;
    let second = site.apply(ANN, &plan, &WHY).await;
    assert!(first.body.matches(">done<").count() == 2 && first.body == second.body);
    assert_eq!(site.audited().len(), 2);
}

#[tokio::test]
async fn of_two_operators_the_second_is_told_that_the_key_has_changed() {
    let site = Site::new().await;
    let entries = dead(&site).await;
    let plans = [site.plan(ANN, "forget", &entries[..1]).await, site.plan("bob:admin", "forget", &entries[..1]).await];
    assert!(site.apply(ANN, &plans[0], &WHY).await.body.contains(">done<"));
    let second = site.apply("bob:admin", &plans[1], &WHY).await;
    assert!(second.body.contains(">changed: vacant<"), "{}", second.body);
}

#[tokio::test]
async fn a_plan_of_another_user_and_an_unknown_plan_are_stale() {
    let site = Site::new().await;
    let plan = site.plan(ANN, "forget", &dead(&site).await).await;
    let id = plan.inputs("plan").remove(0);
    let token = site.token("bob:admin").await;
    for id in [id.as_str(), "unknown", ""] {
        let fields = [("token", token.as_str()), ("plan", id), ("reason", "why")];
        assert_eq!(site.post("bob:admin", "/apply", &fields).await.status, StatusCode::CONFLICT);
    }
    assert!(site.audited().is_empty());
}

#[tokio::test]
async fn a_plan_needs_a_reason_a_known_action_and_well_formed_entries() {
    let site = Site::new().await;
    let entries = dead(&site).await;
    let plan = site.plan(ANN, "forget", &entries).await;
    let (token, id) = (plan.inputs("token").remove(0), plan.inputs("plan").remove(0));
    for reason in ["", " ", "a\nb"] {
        let fields = [("token", token.as_str()), ("plan", id.as_str()), ("reason", reason)];
        assert_eq!(site.post(ANN, "/apply", &fields).await.status, StatusCode::BAD_REQUEST, "{reason:?}");
    }
    let key = entries[0].split_once(' ').unwrap().1.to_owned();
    for (action, entry) in
        [("purge", entries[0].clone()), ("forget", key), ("forget", "7 x".into()), ("redrive", String::new())]
    {
        assert_eq!(site.plan(ANN, action, &[entry]).await.status, StatusCode::BAD_REQUEST, "{action}");
    }
    assert_eq!(site.plan(ANN, "forget", &[]).await.status, StatusCode::BAD_REQUEST);
    let fields = [("token", token.as_str()), ("target", "other"), ("action", "forget"), ("entry", entries[0].as_str())];
    assert_eq!(site.post(ANN, "/plan", &fields).await.status, StatusCode::NOT_FOUND);
    assert!(site.audited().is_empty());
}

#[tokio::test]
async fn more_than_a_hundred_entries_need_their_number() {
    let site = Site::new().await;
    let entry = dead(&site).await.remove(0);
    let plan = site.plan(ANN, "forget", &vec![entry; 101]).await;
    let (token, id) = (plan.inputs("token").remove(0), plan.inputs("plan").remove(0));
    let fields = [("token", token.as_str()), ("plan", id.as_str()), WHY[0]];
    assert_eq!(site.post(ANN, "/apply", &fields).await.status, StatusCode::BAD_REQUEST);
    let task = site.apply(ANN, &plan, &[WHY[0], ("count", "101")]).await;
    assert_eq!((task.body.matches(">done<").count(), task.body.matches(">changed: vacant<").count()), (1, 100));
}

#[tokio::test]
async fn selected_letters_are_put_back_or_removed() {
    let site = Site::new().await;
    let ids = site.get(ANN, "/dead-letters?read=1").await.inputs("entry");
    assert_eq!(ids.len(), 2);
    let redriven = site.apply(ANN, &site.plan(ANN, "redrive", &ids[..1]).await, &WHY).await;
    assert!(redriven.body.contains(">done<"), "{}", redriven.body);
    assert_eq!((site.queue.dead_letters().len(), site.queue.pending()), (1, 1));
    let again = site.apply(ANN, &site.plan(ANN, "redrive", &ids[..1]).await, &WHY).await;
    assert!(again.body.contains(">gone<"), "{}", again.body);
    let discarded = site.apply(ANN, &site.plan(ANN, "discard", &ids[1..]).await, &WHY).await;
    assert!(discarded.body.contains(">done<"), "{}", discarded.body);
    assert_eq!((site.queue.dead_letters().len(), site.queue.pending()), (0, 1));
    let token = site.token(ANN).await;
    let plan = site.plan(ANN, "redrive", &ids).await;
    let id = plan.inputs("plan").remove(0);
    let fields = [("token", token.as_str()), ("plan", id.as_str()), WHY[0], ("rate", "0")];
    assert_eq!(site.post(ANN, "/apply", &fields).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_intent_of_a_plan_over_letters_names_them() {
    let site = Site::new().await;
    let ids = site.get(ANN, "/dead-letters?read=1").await.inputs("entry");
    site.apply(ANN, &site.plan(ANN, "redrive", &ids).await, &WHY).await;
    let log = std::fs::read_to_string(site.audit.path()).unwrap();
    let intent: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&intent["phase"], &intent["subject"]), (&"intent".into(), &"2 letters: 1@9, 2@9".into()));
}

#[tokio::test]
async fn of_two_letters_of_one_message_exactly_the_selected_one_is_removed() {
    let site = Site::new().await;
    // The letters m-1, m-2, m-1 after another death, and m-3.
    for id in ["m-1", "m-3"] {
        crate::site::bury(&site.queue, id, "no stock").await;
    }
    let letters = |site: &Site| site.queue.dead_letters().len();
    let entries = site.get(ANN, "/dead-letters?read=1").await.inputs("entry");
    let plan = site.plan(ANN, "discard", &entries[2..]).await;
    assert!(plan.body.contains("<p>2 entries of") && plan.body.contains("3@9 of message m-1"), "{}", plan.body);
    let task = site.apply(ANN, &plan, &WHY).await;
    assert!(task.body.contains("2 of 2 entries") && task.body.matches(">done<").count() == 2, "{}", task.body);
    assert_eq!(site.get(ANN, "/dead-letters?read=1").await.inputs("entry"), entries[..2]);
    let log = std::fs::read_to_string(site.audit.path()).unwrap();
    assert!(log.contains("\"2 letters: 3@9, 4@9\"") && log.contains("\"3@9 of message m-1\""), "{log}");

    let again = site.apply(ANN, &site.plan(ANN, "discard", &entries[1..3]).await, &WHY).await;
    let outcomes = [again.body.matches(">done<").count(), again.body.matches(">gone<").count()];
    assert_eq!((outcomes, letters(&site)), ([1, 1], 1), "{}", again.body);
}

#[tokio::test]
async fn an_audit_log_that_fails_stops_the_task_before_any_change() {
    #[derive(Debug)]
    struct Full;
    impl idempotent_operate::AuditSink for Full {
        fn write(&self, _: &idempotent_operate::AuditEntry) -> std::io::Result<()> {
            Err(std::io::Error::other("the disk is full"))
        }
    }
    let site = Site::with(crate::site::store(0, 1).await, |builder| {
        let admin =
            |_: &http::request::Parts| Some(idempotent_console::User::new("ann", idempotent_console::Role::Admin));
        builder.audit(std::sync::Arc::new(Full)).access(idempotent_console::Access::from_request(admin))
    })
    .await;
    let entries = dead(&site).await;
    let task = site.apply(ANN, &site.plan(ANN, "forget", &entries).await, &WHY).await;
    assert!(task.body.contains("the disk is full"), "{}", task.body);
    assert_ne!(state(&site, &entries[0]).await, Some(StateKind::Vacant));
}
