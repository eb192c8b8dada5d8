//! Changes by plans and tasks.
use std::sync::Arc;

use http::StatusCode;
use idempotent::mq::{
    DeadLetter, DeadLetters, MemoryDeadLetters, OutboundMessage, SourceError, SourceErrorKind, StoredLetter,
};
use idempotent_console::{Access, OutboxAccess, PooledOutbox, Role};
use idempotent_core::StateKind;
use idempotent_sqlx::sqlx::sqlite::SqlitePoolOptions;
use idempotent_sqlx::{DelayTable, Outbox, OutboxStatus, ScheduledTask};

use crate::site::{Site, bury, bury_as, queue, store, user_of};

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
    for reason in ["", " ", "a\nb"] {
        let applied = site.try_apply(ANN, &plan, &[("reason", reason)]).await;
        assert_eq!(applied.status, StatusCode::BAD_REQUEST, "{reason:?}");
    }
    let token = plan.inputs("token").remove(0);
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
    let hundred = site.plan(ANN, "release", &vec![entry.clone(); 100]).await;
    assert!(hundred.inputs("plan").len() == 1 && !hundred.body.contains("name=\"count\""), "{}", hundred.body);
    site.apply(ANN, &hundred, &WHY).await;
    let entry = dead(&site).await.remove(0);
    let plan = site.plan(ANN, "forget", &vec![entry; 101]).await;
    assert!(plan.body.contains("name=\"count\""), "{}", plan.body);
    assert_eq!(site.try_apply(ANN, &plan, &WHY).await.status, StatusCode::BAD_REQUEST);
    let task = site.apply(ANN, &plan, &[WHY[0], ("count", "101")]).await;
    assert_eq!((task.body.matches(">done<").count(), task.body.matches(">changed: vacant<").count()), (1, 100));
}

#[tokio::test]
async fn numbers_of_entries_lengths_of_reasons_and_rates_end_at_their_limits() {
    let site = Site::new().await;
    let entry = dead(&site).await.remove(0);
    for (entries, status) in [(1_000, StatusCode::OK), (1_001, StatusCode::BAD_REQUEST)] {
        assert_eq!(site.plan(ANN, "forget", &vec![entry.clone(); entries]).await.status, status, "{entries}");
    }
    let plan = site.plan(ANN, "forget", &[entry]).await;
    let [longest, too_long] = [4_096, 4_097].map(|length| "x".repeat(length));
    for (reason, rate, status) in [
        (&too_long, "1000", StatusCode::BAD_REQUEST),
        (&longest, "1001", StatusCode::BAD_REQUEST),
        (&longest, "1000", StatusCode::SEE_OTHER),
    ] {
        let applied = site.try_apply(ANN, &plan, &[("reason", reason.as_str()), ("rate", rate)]).await;
        assert_eq!(applied.status, status, "{} {rate}", reason.len());
    }
}

#[tokio::test]
async fn keys_are_freed_by_a_redrive_that_asks_for_it_only() {
    let site = Site::new().await;
    let keys = dead(&site).await;
    let seen: Vec<_> = site.get_keys().await;
    let letter = |entry: &str| {
        let (key, fencing) = seen.iter().find(|(key, _)| entry.split_once(' ').unwrap().1 == key.as_str()).unwrap();
        let mut letter = DeadLetter::because("no stock", idempotent::Timestamp(9));
        letter.id = Some(format!("{key}:{fencing}"));
        letter
    };
    let frees = [WHY[0], ("let_go", "1")];
    for (id, key, action, asks, is_freed) in [
        ("m-3", 0, "redrive", &WHY[..], false),
        ("m-4", 1, "discard", &frees, false),
        ("m-5", 0, "redrive", &frees, true),
    ] {
        bury_as(&site.queue, id, letter(&keys[key])).await;
        let entry = site.get(ANN, "/dead-letters?read=1").await.inputs("entry").pop().unwrap();
        let plan = site.plan(ANN, action, &[entry]).await;
        assert_eq!(plan.body.contains("name=\"let_go\""), action == "redrive", "{}", plan.body);
        let task = site.apply(ANN, &plan, asks).await;
        assert!(task.body.contains(">done"), "{}", task.body);
        assert_eq!(task.body.contains("the key can be claimed"), is_freed, "{}", task.body);
        assert_eq!(state(&site, &keys[key]).await == Some(StateKind::Vacant), is_freed, "{id}");
    }
}

/// Letters that another reader holds.
#[derive(Debug)]
struct Held;

#[async_trait::async_trait]
impl DeadLetters for Held {
    async fn count(&mut self) -> Result<u64, SourceError> {
        Ok(1)
    }
    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        Ok(None)
    }
    async fn put_back(&mut self) -> Result<bool, SourceError> {
        Ok(false)
    }
    async fn discard(&mut self) -> Result<bool, SourceError> {
        Ok(false)
    }
}

#[tokio::test]
async fn a_letter_that_another_reader_holds_is_not_called_gone() {
    let site = Site::with(store(0, 0).await, |builder| {
        builder
            .access(Access::from_request(user_of))
            .queue("held", || async { Ok::<_, String>(Box::new(Held) as Box<_>) })
    })
    .await;
    let entries = site.get(ANN, "/dead-letters?read=1").await.inputs("entry");
    let plan = site.plan_on("held", ANN, "redrive", &entries[..1]).await;
    let task = site.apply(ANN, &plan, &WHY).await;
    assert!(task.body.contains(">not read: another reader may hold it<"), "{}", task.body);
}

/// Letters of which one cannot be put back.
#[derive(Debug)]
struct Picky(MemoryDeadLetters, Option<String>);

#[async_trait::async_trait]
impl DeadLetters for Picky {
    async fn count(&mut self) -> Result<u64, SourceError> {
        self.0.count().await
    }
    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let letter = self.0.next().await?;
        self.1 = letter.as_ref().and_then(|letter| letter.delivery.id.clone());
        Ok(letter)
    }
    async fn put_back(&mut self) -> Result<bool, SourceError> {
        match self.1.as_deref() {
            Some("m-1") => Err(SourceError::new(SourceErrorKind::Refused, "too large for its queue")),
            _ => self.0.put_back().await,
        }
    }
    async fn discard(&mut self) -> Result<bool, SourceError> {
        self.0.discard().await
    }
}

#[tokio::test]
async fn a_letter_that_cannot_be_put_back_is_passed_by_with_its_reason_and_stays() {
    let letters = queue(&["no stock", "no stock"]).await;
    let opened = letters.clone();
    let site = Site::with(store(0, 0).await, |builder| {
        builder.access(Access::from_request(user_of)).queue("picky", move || {
            let letters = Picky(MemoryDeadLetters::new(&opened), None);
            async { Ok::<_, String>(Box::new(letters) as Box<_>) }
        })
    })
    .await;
    let entries = site.get(ANN, "/dead-letters?queue=picky&read=1").await.inputs("entry");
    let task = site.apply(ANN, &site.plan_on("picky", ANN, "redrive", &entries).await, &WHY).await;
    let passed_by = "passed by: this message is refused: too large for its queue";
    assert!(task.body.contains(passed_by) && task.body.matches(">done<").count() == 1, "{}", task.body);
    assert_eq!((letters.dead_letters().len(), letters.pending()), (1, 1));
    assert!(site.audited().iter().any(|(_, action, outcome)| action == "redrive" && outcome == passed_by));
}

#[tokio::test]
async fn a_cancelled_task_puts_back_no_more_letters() {
    let site = Site::new().await;
    for number in 3..60 {
        bury(&site.queue, &format!("m-{number}"), "no stock").await;
    }
    let entries = site.get(ANN, "/dead-letters?read=1").await.inputs("entry");
    let plan = site.plan(ANN, "redrive", &entries).await;
    let (token, id) = (plan.inputs("token").remove(0), plan.inputs("plan").remove(0));
    assert_eq!(site.try_apply(ANN, &plan, &[WHY[0], ("rate", "1")]).await.status, StatusCode::SEE_OTHER);
    let cancelled = site.post(ANN, "/cancel", &[("token", &token), ("id", &id)]).await;
    assert_eq!((cancelled.status, cancelled.location()), (StatusCode::SEE_OTHER, &*format!("task?id={id}")));
    // A second request starts nothing, and waits for the end.
    let task = site.apply(ANN, &plan, &WHY).await;
    assert!(task.body.contains("cancelled") && site.queue.pending() <= 5, "{}", task.body);
}

#[tokio::test]
async fn selected_messages_of_an_outbox_are_resent_or_voided_and_no_other() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    for id in ["p-1", "p-2", "p-3"] {
        outbox.enqueue(&mut transaction, &OutboundMessage::new("payments", id, "secret")).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let tasks = DelayTable::builder(pool.clone()).create(true).open().await.unwrap();
    tasks.put(&ScheduledTask::after("limit", std::time::Duration::ZERO, "secret")).await.unwrap();
    let access = Arc::new(PooledOutbox::new(outbox, pool));
    let site = Site::with(store(0, 0).await, |builder| {
        builder
            .access(Access::from_request(user_of))
            .outbox("payments", access.clone())
            .delay("limits", Arc::new(tasks))
    })
    .await;
    let overview = site.get(ANN, "/overview").await.body;
    assert!(overview.contains("Outbox payments") && overview.contains("Delay queue limits"), "{overview}");
    assert!(overview.contains("<dt>ready</dt><dd>1</dd>"), "{overview}");
    assert_eq!(site.get(ANN, "/outbox").await.inputs("entry"), ["p-1", "p-2", "p-3"]);
    for (action, id) in [("void", "p-1"), ("resend", "p-2")] {
        let plan = site.plan_on("payments", ANN, action, &[id.to_owned()]).await;
        assert_eq!(site.plan_on("none", ANN, action, &[id.to_owned()]).await.status, StatusCode::NOT_FOUND);
        let task = site.apply(ANN, &plan, &WHY).await;
        assert!(task.body.contains(">done<"), "{}", task.body);
        let (record, _) = access.inspect(id).await.unwrap().unwrap();
        assert_eq!(record.status == OutboxStatus::Void, action == "void");
        let changes = access.audit(id).await.unwrap();
        assert_eq!((changes.len(), &*changes[0].reason), (1, "stock corrected"), "{action}");
    }
    let absent = site.plan_on("payments", ANN, "void", &["p-4".to_owned()]).await;
    assert!(site.apply(ANN, &absent, &WHY).await.body.contains(">failed: "));
    let changed = |action: &str, outcome: &str| ("ann".to_owned(), action.to_owned(), outcome.to_owned());
    let audited = site.audited();
    assert_eq!(audited[..2], [changed("void", "done"), changed("resend", "done")]);
    assert!(audited.len() == 3 && audited[2].2.starts_with("failed: "), "{audited:?}");
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
    let plan = site.plan(ANN, "redrive", &ids).await;
    assert_eq!(site.try_apply(ANN, &plan, &[WHY[0], ("rate", "0")]).await.status, StatusCode::BAD_REQUEST);
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
    let site = Site::for_role(Role::Admin, store(0, 1).await, |builder| builder.audit(Arc::new(Full))).await;
    let entries = dead(&site).await;
    let task = site.apply(ANN, &site.plan(ANN, "forget", &entries).await, &WHY).await;
    assert!(task.body.contains("the disk is full"), "{}", task.body);
    assert_ne!(state(&site, &entries[0]).await, Some(StateKind::Vacant));
}
