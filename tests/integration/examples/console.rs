//! The example `console`, from outside: its link logs in, and the overview shows the dead keys and the blocked stream.
use crate::example::Running;
use crate::rest::client::{Answer, curl};
use crate::wait::until;

fn request(arguments: &[&str]) -> Answer {
    curl(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn the_link_logs_in_once_and_the_console_shows_what_is_stuck() {
    let mut example = Running::start("console", &[]);
    let link = example.says(1).remove(0);
    let (base, token) = link.split_once("/login?token=").expect("a link with a token");
    let login = [
        "--header",
        &format!("Origin: {base}"),
        "--data-urlencode",
        &format!("access_token={token}"),
        &format!("{base}/login"),
    ];
    let entered = request(&login);
    assert_eq!(entered.status, 303, "{}", body(&entered));
    let cookie = entered.headers.iter().find(|(name, _)| name == "set-cookie").expect("a session");
    let session = cookie.1.split(';').next().unwrap();
    let page = |path: &str| {
        let answer = request(&["--header", &format!("Cookie: {session}"), &format!("{base}/{path}")]);
        assert_eq!(answer.status, 200, "{path}: {}", body(&answer));
        body(&answer)
    };
    until("the keys of three refused cards are dead", || page("dead").matches("the card was refused").count() == 3);
    until("one handler hangs", || page("in-flight").contains("1 key, "));
    assert!(page("order").contains("1 stream whose next number waits"), "{}", page("order"));
    assert_ne!(request(&login).status, 303, "the link is valid once");
}
