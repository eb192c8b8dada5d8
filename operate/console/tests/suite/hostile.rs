//! Requests and records of an attacker.
use axum::body::Body;
use http::{Request, StatusCode};

use crate::site::{Site, form, request};

const HOSTILE: &str = "<script>alert(1)</script>\"onmouseover=\u{202e}\u{200b}'";

#[tokio::test]
async fn texts_of_records_letters_and_reasons_are_shown_as_text() {
    let mut site = Site::new().await;
    site.queue = crate::site::queue(&[]).await;
    let site = site;
    let entry = site.get("ann:admin", "/dead").await.inputs("entry").remove(0);
    let plan = site.plan("ann:admin", "forget", &[entry]).await;
    site.apply("ann:admin", &plan, &[("reason", HOSTILE)]).await;
    for page in [
        "/audit",
        "/keys?scope=%3Cscript%3Ealert(1)%3C/script%3E*",
        "/dead-letters?read=1&cause=%22onmouseover=%3Cscript%3E",
    ] {
        let answer = site.get("ann:admin", page).await;
        assert_eq!(answer.status, StatusCode::OK, "{page}");
        assert!(
            !answer.body.contains("<script>alert") && !answer.body.contains("\"onmouseover"),
            "{page}: {}",
            answer.body
        );
        assert!(!answer.body.contains('\u{202e}') && !answer.body.contains('\u{200b}'), "{page}");
    }
    assert!(site.get("ann:admin", "/audit").await.body.contains("\\u{202e}"));
}

#[tokio::test]
async fn a_hostile_key_cursor_and_number_is_refused_with_its_rule() {
    let site = Site::new().await;
    for path in [
        "/key?k=%3Cscript%3E",
        "/key",
        "/key?k=a:b:c:%7Bshort%7D",
        "/stream?k=x",
        "/keys?after=zz",
        "/keys?after=%2B1",
        "/order?after=0",
        "/keys?limit=0",
        "/keys?limit=-1",
        "/keys?limit=x",
        "/keys?state=gone",
        "/keys?older_than=soon",
        "/keys?scope=a*b",
        "/keys?min_attempt=-1",
    ] {
        let answer = site.get("ann:viewer", path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(!answer.body.contains("<script>"), "{path}");
    }
    assert_eq!(site.get("ann:viewer", "/keys?limit=1000000000").await.status, StatusCode::OK);
    for path in ["/keys?store=other", "/dead-letters?queue=%00", "/task?id="] {
        assert!([StatusCode::NOT_FOUND, StatusCode::CONFLICT].contains(&site.get("ann:viewer", path).await.status));
    }
}

#[tokio::test]
async fn only_the_listed_assets_are_served() {
    let site = Site::new().await;
    for name in ["console.css", "console.js", "icon.svg"] {
        let answer = site.get("", &format!("/assets/{name}")).await;
        assert_eq!(
            (answer.status, answer.headers["x-content-type-options"].to_str().unwrap()),
            (StatusCode::OK, "nosniff")
        );
        assert!(answer.headers["cache-control"].to_str().unwrap().contains("immutable"));
    }
    for name in ["../Cargo.toml", "%2e%2e/Cargo.toml", "..%2fCargo.toml", "console.css/", "", "CONSOLE.CSS"] {
        let answer = site.get("ann:admin", &format!("/assets/{name}")).await;
        assert_eq!(
            (answer.status, &answer.headers["cache-control"]),
            (StatusCode::NOT_FOUND, &"no-store".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn large_requests_are_refused() {
    let site = Site::new().await;
    for (length, status) in [(8 << 10, StatusCode::NOT_FOUND), ((8 << 10) + 1, StatusCode::PAYLOAD_TOO_LARGE)] {
        let path = format!("/{}", "x".repeat(length - 1));
        assert_eq!(site.get("ann:admin", &path).await.status, status);
    }
    let large = "x".repeat(300 << 10);
    let answer = site.post("ann:admin", "/plan", &[("entry", &large)]).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_request_without_a_host_or_with_a_broken_form_changes_nothing() {
    let site = Site::new().await;
    let no_host = Request::builder().method("POST").uri("/plan").header("x-user", "ann:admin");
    assert_eq!(site.send(form(no_host, &[])).await.status, StatusCode::FORBIDDEN);
    let broken = request("POST", "ann:admin", "/plan").header("content-type", "application/x-www-form-urlencoded");
    let answer = site.send(broken.body(Body::from(&b"token=%ff%zz&&=&action"[..])).unwrap()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(site.audited().is_empty());
}
