//! Removal of single guards from a Lua script.
//!
//! A guard is an operand of `and` or `or` in the condition of an `if`, at any depth of parentheses, or the whole
//! condition. An operand of `and` becomes `true`, one of `or` becomes `false`, and a whole condition is tried as both.
use std::ops::Range;

/// A script in which one guard is constant.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    /// Line of the guard.
    pub(crate) line: String,
    pub(crate) guard: String,
    /// Value of the guard.
    pub(crate) says: bool,
    pub(crate) text: String,
}

/// Returns all edits of a script.
pub(crate) fn edits(text: &str) -> Vec<Edit> {
    let mut edits = Vec::new();
    for condition in conditions(text) {
        let mut guards = Vec::new();
        operands(text, condition.clone(), &mut guards);
        if guards.is_empty() {
            guards.extend([(condition.clone(), true), (condition, false)]);
        }
        edits.extend(guards.into_iter().map(|(guard, says)| edit(text, guard, says)));
    }
    edits
}

fn edit(text: &str, guard: Range<usize>, says: bool) -> Edit {
    let start = text[..guard.start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default().trim().to_owned();
    let edited = format!("{}{says}{}", &text[..guard.start], &text[guard.end..]);
    Edit { line, guard: text[guard].to_owned(), says, text: edited }
}

/// Returns words and parentheses outside of strings and comments, with their depth.
fn words(text: &str, within: Range<usize>) -> Vec<(Range<usize>, usize)> {
    let bytes = text.as_bytes();
    let (mut words, mut depth, mut at) = (Vec::new(), 0_usize, within.start);
    while at < within.end {
        let start = at;
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < within.end && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = text[at..].find('\n').map_or(within.end, |end| at + end);
            }
            b'(' | b'[' | b'{' => {
                words.push((start..start + 1, depth));
                depth += 1;
                at += 1;
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                words.push((start..start + 1, depth));
                at += 1;
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                while at < within.end && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                words.push((start..at, depth));
            }
            _ => at += 1,
        }
    }
    words
}

fn conditions(text: &str) -> Vec<Range<usize>> {
    let (mut conditions, mut begun) = (Vec::new(), None);
    for (word, _) in words(text, 0..text.len()) {
        match &text[word.clone()] {
            "if" | "elseif" => begun = Some(word.end),
            "then" => conditions.extend(begun.take().map(|start| trimmed(text, start..word.start))),
            _ => {}
        }
    }
    conditions
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

/// Collects the operands of an expression and of its parenthesized parts.
fn operands(text: &str, expression: Range<usize>, found: &mut Vec<(Range<usize>, bool)>) {
    let parts = |by: &str| split(text, expression.clone(), by);
    let (any, all) = (parts("or"), parts("and"));
    let (parts, says) = if any.len() > 1 { (any, false) } else { (all, true) };
    if parts.len() > 1 {
        for part in parts {
            found.push((part.clone(), says));
            operands(text, part, found);
        }
        return;
    }
    for group in groups(text, expression) {
        operands(text, group, found);
    }
}

/// Splits at the word `by` outside of parentheses.
fn split(text: &str, expression: Range<usize>, by: &str) -> Vec<Range<usize>> {
    let (mut parts, mut start) = (Vec::new(), expression.start);
    for (word, depth) in words(text, expression.clone()) {
        if depth == 0 && &text[word.clone()] == by {
            parts.push(trimmed(text, start..word.start));
            start = word.end;
        }
    }
    parts.push(trimmed(text, start..expression.end));
    parts
}

/// Returns the contents of the outermost parentheses.
fn groups(text: &str, expression: Range<usize>) -> Vec<Range<usize>> {
    let (mut groups, mut begun) = (Vec::new(), None);
    for (word, depth) in words(text, expression) {
        match (&text[word.clone()], depth) {
            ("(", 0) => begun = Some(word.end),
            (")", 0) => groups.extend(begun.take().map(|start| trimmed(text, start..word.start))),
            _ => {}
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        edits(text).iter().map(|edit| format!("{} {}", edit.guard, edit.says)).collect()
    }

    #[test]
    fn each_operand_of_a_condition_is_a_guard_and_a_simple_condition_is_mutated_both_ways() {
        assert_eq!(told("if a and b(c or 1) then x() end"), ["a true", "b(c or 1) true", "c false", "1 false"]);
        assert_eq!(told("if a and b or not c then end"), ["a and b false", "a true", "b true", "not c false"]);
        assert_eq!(told("if a == 'x and y' then -- or z\n end"), ["a == 'x and y' true", "a == 'x and y' false"]);
        assert_eq!(told("local a = b and c"), [""; 0]);
    }

    #[test]
    fn an_edit_changes_one_guard_and_names_its_position() {
        let edits = edits("#!lua\nif a then\n  if b and c then end\nend");
        assert_eq!((&*edits[2].line, &*edits[2].guard), ("if b and c then end", "b"));
        assert_eq!(edits[2].text, "#!lua\nif a then\n  if true and c then end\nend");
    }
}
