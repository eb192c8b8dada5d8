//! Suggestions: finds the known word nearest to a misspelled one.

/// Returns the word of `known` that `word` most likely misspells, if one is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::damerau_levenshtein(word, known), known));
    // At most a third of the letters may be wrong, and never all letters of a short word.
    near.filter(|(slips, known)| *slips <= (known.len() / 3).max(1) && *slips < known.len().min(word.len()))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, known)| known)
}

/// Returns "; did you mean `x`?", or an empty text.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|known| format!("; did you mean `{known}`?")).unwrap_or_default()
}

/// Returns "`a`, `b` or `c`".
pub(crate) fn any_of(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_recognised_and_a_different_word_is_not() {
        let known = ["key", "lease", "max_retries", "scene"];
        for (slip, meant) in [("leese", "lease"), ("kye", "key"), ("max_retry", "max_retries"), ("Scene", "scene")] {
            assert_eq!(nearest(slip, known), Some(meant), "{slip}");
        }
        for other in ["id", "broker", "k"] {
            assert_eq!(nearest(other, known), None, "{other}");
        }
        assert_eq!(any_of(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(any_of(&["a"]), "`a`");
    }
}
