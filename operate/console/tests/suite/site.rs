//! A console in this process, and a client that behaves like a browser.
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use idempotent::mq::{DeadLetter, Delivery, MemoryDeadLetters, MemoryQueue, Position, Received, Settlement, Source};
use idempotent::{Executor, FencingToken, Key, Store};
use idempotent_console::{Access, Console, ConsoleBuilder, Role, User};
use tempfile::NamedTempFile;
use tower::ServiceExt;

/// The name of the store and of the queue.
pub(crate) const ORDERS: &str = "orders";

/// A console with a store, a queue and an audit file.
pub(crate) struct Site {
    pub(crate) console: Console,
    pub(crate) router: Router,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: MemoryQueue,
    pub(crate) audit: NamedTempFile,
}

/// An answer of the console.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn location(&self) -> &str {
        self.headers["location"].to_str().unwrap()
    }

    /// Returns the values of all inputs of this name.
    pub(crate) fn inputs(&self, name: &str) -> Vec<String> {
        let start = format!("name=\"{name}\" value=\"");
        let values = self.body.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap());
        values.map(|value| value.replace("&#123;", "{").replace("&#125;", "}").replace("&#38;", "&")).collect()
    }

    /// Returns all relative links of the page.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = ["href=\"", "src=\"", "action=\""].iter().flat_map(|start| self.body.split(start).skip(1));
        let links = links.map(|rest| rest.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&"));
        links.filter(|link| !link.starts_with('#')).collect()
    }
}

/// Returns the user of the header `x-user`, such as `ann:operator`.
pub(crate) fn user_of(parts: &Parts) -> Option<User> {
    let (name, role) = parts.headers.get("x-user")?.to_str().ok()?.split_once(':')?;
    let role = [Role::Viewer, Role::Operator, Role::Admin].into_iter().find(|known| known.name() == role)?;
    Some(User::new(name, role))
}

/// Returns a store whose keys `1` to `consumed` are consumed, and the next `dead` ones are dead.
pub(crate) async fn store(consumed: u32, dead: u32) -> Arc<dyn Store> {
    use idempotent_core::{Call, DefaultReply, Handler, Identity, Json, Rejection, Scene};

    let store = idempotent::connect("sqlite::memory:").await.unwrap();
    let executor = Executor::new(store.clone());
    for number in 1..=consumed + dead {
        let handler = Handler::<DefaultReply, Json, _, _>::new(async || match number {
            number if number <= consumed => Ok(number),
            _ => Err(Rejection::Mismatch),
        });
        let call = Call::new(Identity::new(Scene::Mq, ORDERS, &number));
        let _ = executor.run(call, handler.permanent(|_| true)).await;
    }
    store
}

/// Returns a queue with a dead letter for each reason, with the ids `m-1`, `m-2` and so on.
pub(crate) async fn queue(reasons: &[&'static str]) -> MemoryQueue {
    let queue = MemoryQueue::new(ORDERS);
    for (number, reason) in (1..).zip(reasons) {
        bury(&queue, &format!("m-{number}"), reason).await;
    }
    queue
}

/// Adds a dead letter of the message with this id.
pub(crate) async fn bury(queue: &MemoryQueue, id: &str, reason: &'static str) {
    bury_as(queue, id, DeadLetter::because(reason, idempotent::Timestamp(9))).await;
}

/// Adds this dead letter of the message with this id.
pub(crate) async fn bury_as(queue: &MemoryQueue, id: &str, letter: DeadLetter) {
    let mut source = queue.source();
    queue.send_delivery(Delivery::new(Position::of(ORDERS), b"{\"secret\": 17}".to_vec()).id(id));
    let Received::Deliveries(taken) = source.receive(1).await.unwrap() else { unreachable!() };
    source.settler().settle(&taken[0].0, &taken[0].1, &Settlement::DeadLetter(letter)).await.unwrap();
}

impl Site {
    /// Builds a console whose users are in the header `x-user`.
    pub(crate) async fn new() -> Self {
        Self::with(store(2, 2).await, |builder| builder.access(Access::from_request(user_of))).await
    }

    pub(crate) async fn with(store: Arc<dyn Store>, change: impl FnOnce(ConsoleBuilder) -> ConsoleBuilder) -> Self {
        let (audit, queue) = (NamedTempFile::new().unwrap(), queue(&["no stock", "no customer"]).await);
        let letters = queue.clone();
        let open = move || {
            let letters = MemoryDeadLetters::new(&letters);
            async { Ok::<_, String>(Box::new(letters) as Box<_>) }
        };
        let builder = Console::builder().store(ORDERS, store.clone()).queue_with_store(ORDERS, open, store.clone());
        let builder = change(builder.audit_file(audit.path()).unwrap());
        let console = builder.build().unwrap();
        Self { router: console.router(), console, store, queue, audit }
    }

    /// Builds a console over a store, whose only user has this role.
    pub(crate) async fn for_role(
        role: Role,
        store: Arc<dyn Store>,
        change: impl FnOnce(ConsoleBuilder) -> ConsoleBuilder,
    ) -> Self {
        let access = Access::from_request(move |_| Some(User::new("ann", role)));
        Self::with(store, |builder| change(builder.access(access))).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    /// Requests a page as a user, such as `ann:operator`.
    pub(crate) async fn get(&self, user: &str, path: &str) -> Answer {
        self.send(request("GET", user, path).body(Body::empty()).unwrap()).await
    }

    /// Sends a form as a browser does, without a form token of its own.
    pub(crate) async fn post(&self, user: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(form(request("POST", user, path), fields)).await
    }

    /// Returns the form token of a user.
    pub(crate) async fn token(&self, user: &str) -> String {
        self.get(user, "/keys").await.inputs("token").remove(0)
    }

    /// Plans an action on entries, and returns the page of the plan.
    pub(crate) async fn plan(&self, user: &str, action: &str, entries: &[String]) -> Answer {
        self.plan_on(ORDERS, user, action, entries).await
    }

    /// Plans an action on entries of this target, and returns the page of the plan.
    pub(crate) async fn plan_on(&self, target: &str, user: &str, action: &str, entries: &[String]) -> Answer {
        let token = self.token(user).await;
        let mut fields = vec![("token", token.as_str()), ("target", target), ("action", action)];
        fields.extend(entries.iter().map(|entry| ("entry", entry.as_str())));
        self.post(user, "/plan", &fields).await
    }

    /// Applies the plan of a page with more fields, and returns the answer.
    pub(crate) async fn try_apply(&self, user: &str, plan: &Answer, more: &[(&str, &str)]) -> Answer {
        let (token, id) = (plan.inputs("token").remove(0), plan.inputs("plan").remove(0));
        self.post(user, "/apply", &[&[("token", token.as_str()), ("plan", id.as_str())], more].concat()).await
    }

    /// Applies the plan of a page with more fields, and returns the page of its task once it has ended.
    pub(crate) async fn apply(&self, user: &str, plan: &Answer, more: &[(&str, &str)]) -> Answer {
        let applied = self.try_apply(user, plan, more).await;
        assert_eq!(applied.status, StatusCode::SEE_OTHER, "{}", applied.body);
        let task = format!("/{}", applied.location());
        loop {
            let page = self.get(user, &task).await;
            if page.body.contains("Ended") {
                return page;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the storage keys of the dead and failed keys.
    pub(crate) async fn get_keys(&self) -> Vec<(Key, FencingToken)> {
        let filter = idempotent_operate::KeyFilter::default();
        let page = idempotent_operate::list(&*self.store, &filter, None, Default::default()).await.unwrap();
        page.keys.into_iter().map(|(key, record)| (key, FencingToken(record.fencing))).collect()
    }

    /// Forgets a key without the console.
    pub(crate) async fn forget(&self, (key, seen): &(Key, FencingToken)) {
        let admin = self.store.capabilities().admin.unwrap();
        admin.forget(key, *seen, false, std::time::Duration::from_secs(60)).await.unwrap();
    }

    /// Returns the outcomes of the audit file, without those of intents.
    pub(crate) fn audited(&self) -> Vec<(String, String, String)> {
        let reader = idempotent_operate::AuditReader::open(self.audit.path()).unwrap();
        let entries = reader.entries().unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.by, entry.action, entry.outcome.unwrap_or_default())).collect()
    }
}

pub(crate) fn request(method: &str, user: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "console.test").header("x-user", user)
}

/// Completes a request with a form and the headers of a browser.
pub(crate) fn form(request: http::request::Builder, fields: &[(&str, &str)]) -> Request<Body> {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    request.header("origin", "http://console.test").header("sec-fetch-site", "same-origin").body(body.into()).unwrap()
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, 16 << 20).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}
