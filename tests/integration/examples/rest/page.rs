//! The page, as it is served; what it does is tried in `tests/integration/examples/browser`.
use crate::rest::client::curl;
use crate::rest::service::Service;

const FILES: [(&str, &str); 5] = [
    ("/", "text/html; charset=utf-8"),
    ("/page.css", "text/css; charset=utf-8"),
    ("/page.js", "text/javascript; charset=utf-8"),
    ("/icon.svg", "image/svg+xml"),
    ("/code", "text/plain; charset=utf-8"),
];

#[test]
fn the_page_is_all_its_own_under_a_policy_without_exceptions() {
    let service = Service::start();
    for (path, kind) in FILES {
        let answer = service.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        let sources = policy.split([';', ' ']).filter(|word| word.contains(':') || word.contains('*'));
        assert_eq!(sources.collect::<Vec<_>>(), Vec::<&str>::new(), "nothing from elsewhere");
    }
    let html = String::from_utf8(service.get("/").body).unwrap();
    for inline in ["style=", "<style", "onclick", "onsubmit", "javascript:", "http:", "https:"] {
        assert!(!html.contains(inline), "{inline}");
    }
    assert!(html.matches("<script").count() == 1 && html.contains(r#"<script src="/page.js" defer></script>"#));
}

#[test]
fn a_path_out_of_the_folder_of_the_page_is_not_found() {
    let service = Service::start();
    let paths = [
        "/../main.rs",
        "/page/../main.rs",
        "/../../../../etc/passwd",
        "/..%2fmain.rs",
        "/%2e%2e/main.rs",
        "//etc/passwd",
    ];
    for path in paths {
        // Otherwise `curl` removes the dots.
        let answer = curl(&["--path-as-is".to_owned(), format!("{}{path}", service.url())]);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
}

#[test]
fn the_code_shown_is_the_code_that_runs() {
    let service = Service::start();
    let shown = String::from_utf8(service.get("/code").body).unwrap();
    let source = include_str!("../../../../apps/shop/main.rs");
    assert!(source.contains(&shown));
    for part in ["async fn order(", "#[idempotent(", "fn router(", "IdempotencyLayer::by_token("] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("[shown]") && !shown.contains("fn main"));
}
