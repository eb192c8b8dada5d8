//! The pages: contents, links, mounting, JSON and headers.
use axum::Router;
use axum::body::Body;
use http::StatusCode;
use idempotent_console::Role;

use crate::site::{ORDERS, Site, request, send, store};

const PAGES: [&str; 9] =
    ["overview", "keys", "in-flight", "dead", "dead-letters", "order", "health", "audit", "dead-letters?read=1"];

#[tokio::test]
async fn each_page_answers_with_its_security_headers_and_loads_only_own_files() {
    let site = Site::new().await;
    for page in PAGES {
        let answer = site.get("ann:admin", &format!("/{page}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{page}: {}", answer.body);
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert_eq!((header("cache-control"), header("x-frame-options")), ("no-store".into(), "DENY".into()));
        assert_eq!(header("x-content-type-options"), "nosniff");
        for inline in ["<style", "style=", "onclick", "onload", "javascript:", "<script>"] {
            assert!(!answer.body.contains(inline), "{page} has {inline}");
        }
        assert!(answer.body.matches("<h1>").count() == 1, "{page}");
        assert!(answer.links().iter().all(|link| !link.contains("//")), "{page}: {:?}", answer.links());
    }
}

#[tokio::test]
async fn all_links_answer_wherever_the_console_is_mounted() {
    for mount in ["", "/a", "/a/b/c"] {
        let site = Site::new().await;
        let router = match mount {
            "" => site.router.clone(),
            mount => Router::new().merge(site.console.mount(mount)),
        };
        let get = async |path: String| {
            let answer = send(&router, request("GET", "ann:admin", &path).body(Body::empty()).unwrap()).await;
            (path, answer)
        };
        for root in [mount.to_owned(), format!("{mount}/")].into_iter().filter(|root| !root.is_empty()) {
            let (root, answer) = get(root).await;
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{root}");
            let base = root.rsplit_once('/').unwrap().0;
            assert_eq!(format!("{base}/{}", answer.location()), format!("{mount}/overview"));
        }
        for page in PAGES {
            let (path, answer) = get(format!("{mount}/{page}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            for link in answer
                .links()
                .iter()
                .filter(|link| !["plan", "find", "theme"].iter().any(|post| link.starts_with(post)))
            {
                let (path, answer) = get(format!("{mount}/{link}")).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn keys_are_listed_by_state_and_one_key_has_its_facts() {
    let site = Site::new().await;
    let dead = site.get("ann:viewer", "/dead").await;
    assert_eq!(
        dead.body.matches("class=\"state dead\"").count() + dead.body.matches("class=\"state failed\"").count(),
        2
    );
    let consumed = site.get("ann:viewer", "/keys?state=consumed&scope=ord*").await;
    assert!(consumed.body.contains("2 keys, "), "{}", consumed.body);
    assert!(site.get("ann:viewer", "/keys?state=consumed&scope=other").await.body.contains("0 keys, "));
    let link = dead.links().into_iter().find(|link| link.starts_with("key?")).unwrap();
    let key = site.get("ann:viewer", &format!("/{link}")).await;
    assert!(key.body.contains("Fencing number") && key.body.contains("Attempt"), "{}", key.body);
    let absent = site.get("ann:viewer", "/key?k=idempotent:mq:orders:%7BPv_mJFCxQoKrWCJDVdincw%7D").await;
    assert!(absent.body.contains("The key is absent"));
}

#[tokio::test]
async fn pages_follow_each_other_by_a_cursor_and_list_each_key_once() {
    let site = Site::for_role(Role::Viewer, store(25, 0).await, |builder| builder).await;
    let (mut link, mut seen) = ("keys?state=consumed&limit=10".to_owned(), Vec::new());
    loop {
        let page = site.get("", &format!("/{link}")).await;
        seen.extend(page.links().into_iter().filter(|link| link.starts_with("key?")));
        let next = page.links().into_iter().find(|link| link.contains("after="));
        let Some(next) = next else { break };
        link = next;
    }
    assert_eq!(seen.len(), 25);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 25);
}

#[tokio::test]
async fn a_key_is_found_by_the_parts_of_its_identity() {
    let site = Site::new().await;
    let token = site.token("ann:viewer").await;
    let fields = [("token", token.as_str()), ("store", ORDERS), ("kind", "key"), ("scope", ORDERS), ("parts", "1")];
    let found = site.post("ann:viewer", "/find", &fields).await;
    assert_eq!(found.status, StatusCode::SEE_OTHER, "{}", found.body);
    let key = site.get("ann:viewer", &format!("/{}", found.location())).await;
    assert!(key.body.contains("class=\"state consumed\""), "{}", key.body);
}

#[tokio::test]
async fn a_key_of_a_tenant_or_of_a_caller_is_found() {
    use idempotent::http::Caller;
    use idempotent_core::{Identity, Scene};

    let site = Site::new().await;
    let token = site.token("ann:viewer").await;
    let find = async |more: &[(&str, &str)]| {
        let fields = [("token", token.as_str()), ("store", ORDERS), ("scene", "rest"), ("scope", "POST /payments")];
        site.post("ann:viewer", "/find", &[&fields[..], &[("parts", "z2")], more].concat()).await
    };
    let identity = || Identity::new(Scene::Rest, "POST /payments", "z2");
    for (fields, identity) in [
        (&[][..], identity()),
        (&[("tenant", "acme\r\neu")], identity().tenant(&("acme", "eu"))),
        (&[("caller", "ada")], identity().tenant(&Caller::named("ada"))),
        (&[("anonymous", "1")], identity().tenant(&Caller::anonymous())),
    ] {
        let found = find(fields).await;
        let key = form_urlencoded::parse(found.location().as_bytes()).find(|(name, _)| name == "k");
        assert_eq!(key.unwrap().1, identity.key("idempotent").unwrap().as_str(), "{fields:?}");
    }
    let both = find(&[("tenant", "acme"), ("caller", "ada")]).await;
    assert!(both.status == StatusCode::BAD_REQUEST && both.body.contains("a tenant or a caller"), "{}", both.body);
}

#[tokio::test]
async fn the_audit_page_shows_the_end_of_a_large_file_and_names_the_rest() {
    let site = Site::new().await;
    // A part without entries, which takes no space on the disk.
    site.audit.as_file().set_len(90 << 20).unwrap();
    let entry = site.get("ann:admin", "/dead").await.inputs("entry").remove(0);
    let plan = site.plan("ann:admin", "forget", &[entry]).await;
    site.apply("ann:admin", &plan, &[("reason", "stock corrected")]).await;
    let page = site.get("ann:admin", "/audit").await;
    assert!(
        page.body.contains("stock corrected") && page.body.contains("Older entries were not read"),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn programs_get_the_same_data_as_json() {
    let site = Site::new().await;
    for page in PAGES {
        let request = request("GET", "ann:viewer", &format!("/{page}")).header("accept", "application/json");
        let answer = site.send(request.body(Body::empty()).unwrap()).await;
        let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert!(json.is_object(), "{page}");
        if page == "dead" {
            assert_eq!(json["keys"].as_array().unwrap().len(), 2);
            assert!(json["keys"][0]["fencing"].is_u64());
        }
        if page == "overview" {
            let counts = json["stores"][0]["counts"].as_array().unwrap().iter().map(|count| &count[1]);
            let counts: Vec<u64> = counts.map(|count| count.as_str().unwrap().parse().unwrap()).collect();
            assert_eq!((counts[..2].to_vec(), counts[2] + counts[3]), (vec![0, 0], 2), "{json}");
            assert_eq!(counts[4..], [0, 0], "failed checks and warnings: {json}");
            assert_eq!(
                (&json["queues"][0]["queue"], &json["queues"][0]["dead_letters"]),
                (&"orders".into(), &2.into())
            );
        }
    }
}

#[tokio::test]
async fn dead_letters_are_read_on_request_only_and_never_show_a_body() {
    let site = Site::new().await;
    let unread = site.get("ann:viewer", "/dead-letters").await;
    assert!(unread.body.contains("<strong>2</strong> dead letters") && !unread.body.contains("no stock"));
    let read = site.get("ann:viewer", "/dead-letters?read=1").await;
    assert!(read.body.contains("no stock") && read.body.contains("no customer") && !read.body.contains("secret"));
    let one = site.get("ann:viewer", "/dead-letters?read=1&cause=stock").await;
    assert!(one.body.contains("no stock") && !one.body.contains("no customer"));
}

#[tokio::test]
async fn the_overview_shows_the_number_of_failed_checks_and_warnings() {
    // A server without persistence is a warning, and one that evicts records a failed check.
    let server = idempotent_harness::servers::RedisServer::start();
    let store = idempotent::connect(server.url()).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"]);
    let site = Site::for_role(Role::Viewer, store, |builder| builder).await;
    let (overview, health) = (site.get("", "/overview").await.body, site.get("", "/health").await.body);
    let listed = |severity: &str| health.matches(&format!("class=\"state {severity}\"")).count();
    assert!(listed("fail") > 0 && listed("warn") > 0, "{health}");
    assert!(health.contains("set <code>maxmemory-policy noeviction</code>") && !health.contains('`'), "{health}");
    for (name, severity) in [("failed checks", "fail"), ("warnings", "warn")] {
        let figure = format!("<dt>{name}</dt><dd><a href=\"health?store=orders\">{}</a>", listed(severity));
        assert!(overview.contains(&figure), "{figure} is missing in {overview}");
    }
}
