//! A statement without one of its parts, selected by the environment that [`mutants`](crate::outbox::mutants) sets.
use std::env;
use std::sync::LazyLock;

/// `STATEMENT:NUMBER`.
pub(crate) const NAME: &str = "IDEMPOTENT_OUTBOX_MUTANT";

static WANTED: LazyLock<Option<(String, usize)>> = LazyLock::new(|| {
    let wanted = env::var(NAME).ok()?;
    let (name, number) = wanted.split_once(':').unwrap();
    Some((name.to_owned(), number.parse().unwrap()))
});

/// The statement as this process sends it.
pub(crate) fn edited(name: &str, text: String) -> String {
    match &*WANTED {
        // One for less may not have that part.
        Some((wanted, number)) if wanted == name => all(&text).get(*number).map_or(text, |(_, text)| text.clone()),
        _ => text,
    }
}

/// All mutants of a text, each with what is wrong with it. The values it takes, and the columns it answers, stay the same.
/// How many there are, and in which order, does not depend on how many rows it is for.
pub(crate) fn all(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut put = |what: String, from: usize, to: usize, instead: String| {
        all.push((what, format!("{}{instead}{}", &text[..from], &text[to..])));
    };
    for (from, to) in conditions(text) {
        let condition = &text[from..to];
        put(format!("`{condition}` always holds"), from, to, format!("(({condition}) OR 1=1)"));
        put(format!("`{condition}` never holds"), from, to, format!("(({condition}) AND 1=0)"));
    }
    for (old, new) in [
        ("<=", "<"),
        ("max(", "min("),
        ("AND p.seq<t.seq", "AND p.seq<=t.seq"),
        (">", ">="),
        ("sends+v", "sends+2*v"),
        ("(0,3)", "(0)"),
        ("(0,3)", "(3)"),
    ] {
        for (at, _) in text.match_indices(old) {
            // Neither the other half of `<=`, nor of `<>`.
            if !text[..at].ends_with('<') && !text[at..].starts_with(">=") {
                put(format!("`{old}` is `{new}`, at {at}"), at, at + old.len(), new.to_owned());
            }
        }
    }
    for (from, to) in settings(text) {
        let (column, value) = text[from..to].split_once('=').unwrap();
        let old = if text.contains(" AS t SET ") { format!("t.{column}") } else { column.to_owned() };
        put(format!("`{column}` is not set"), from, to, format!("{column}=CASE WHEN 1=1 THEN {old} ELSE {value} END"));
    }
    for (at, order) in text.match_indices("ORDER BY ") {
        let end = at + text[at..].find(" LIMIT").unwrap_or(text.len() - at);
        let end = at + order.len() + text[at + order.len()..end].find(')').unwrap_or(end - at - order.len());
        put("in the other order".to_owned(), at, end, format!("{} DESC", text[at..end].replace(',', " DESC,")));
    }
    all
}

/// Returns the places between keywords such as AND, OR, WHERE and WHEN at one depth of brackets. Inner brackets count
/// separately.
fn conditions(text: &str) -> Vec<(usize, usize)> {
    const BEGIN: [&str; 4] = [" WHERE ", " AND ", " OR ", " WHEN "];
    const END: [&str; 8] = [" AND ", " OR ", " THEN ", " ORDER ", " LIMIT ", " RETURNING ", " UNION ", " FOR "];
    let mut found = Vec::new();
    for begin in BEGIN {
        for (at, _) in text.match_indices(begin) {
            let from = at + begin.len();
            found.push((from, end_of(text, from, &END)));
        }
    }
    // The first of some in brackets.
    for (at, _) in text.match_indices("AND (") {
        let from = at + "AND (".len();
        found.push((from, end_of(text, from, &END)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the places of assignments, COLUMN=VALUE.
fn settings(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for begin in ["UPDATE SET ", " SET "] {
        let Some(at) = text.find(begin) else { continue };
        let mut from = at + begin.len();
        loop {
            let to = end_of(text, from, &[",", " WHERE ", " FROM "]);
            found.push((from, to));
            if !text[to..].starts_with(',') {
                return found;
            }
            from = to + 1;
        }
    }
    found
}

/// Returns the place of the first of these words outside of brackets, or the end of the enclosing bracket or text.
fn end_of(text: &str, from: usize, ends: &[&str]) -> usize {
    let mut depth = 0;
    for (at, letter) in text[from..].char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return from + at,
            ')' => depth -= 1,
            _ if depth == 0 && ends.iter().any(|end| text[from + at..].starts_with(end)) => return from + at,
            _ => {}
        }
    }
    text.len()
}
