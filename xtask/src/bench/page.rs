//! The table in `docs/benchmarks.md`.
use super::figures::{Figure, rounded};

/// Returns the lines before and after the table of one bench.
fn markers(name: &str) -> (String, String) {
    (format!("<!-- {name}: written by `cargo xtask bench {name} --write` -->\n"), format!("<!-- /{name} -->\n"))
}

/// Returns true if the page has an empty place for the table of this bench, as before its first measurement.
#[cfg(test)]
pub(crate) fn is_unmeasured(page: &str, name: &str) -> bool {
    let (begin, end) = markers(name);
    page.contains(&(begin + &end))
}

/// Returns the page with a new table of one bench.
///
/// # Errors
/// The page has no place for the table.
pub(crate) fn with_table(page: &str, name: &str, figures: &[Figure]) -> Result<String, String> {
    let (begin, end) = markers(name);
    let missing = || format!("docs/benchmarks.md has no lines `{}` and `{}`", begin.trim_end(), end.trim_end());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{}{end}{after}", table(figures)))
}

fn table(figures: &[Figure]) -> String {
    let mut table = String::from("| figure | value | floor | ratio | goal | met |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        let number = |figure: Option<f64>| figure.map_or_else(String::new, rounded);
        let goal = figure.goal.map_or_else(String::new, |goal| goal.to_string());
        let met = figure.met.map_or("", |met| if met { "yes" } else { "**no**" });
        let (value, floor, ratio) = (rounded(figure.value), number(figure.floor), number(figure.ratio));
        table += &format!("| {} | {value} {} | {floor} | {ratio} | {goal} | {met} |\n", figure.name, figure.unit);
    }
    table
}
