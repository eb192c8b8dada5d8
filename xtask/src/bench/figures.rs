//! The output of the benches, which is one JSON object per line, and its table in `docs/benchmarks/NAME.md`.
use serde_json::Value;

/// A figure, with its floor if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// The goal, such as `<= 5`.
    pub(crate) goal: Option<String>,
    pub(crate) met: Option<bool>,
}

impl Figure {
    /// Parses a line of output.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("a bench printed `{line}`: {what}");
        let object: Value = serde_json::from_str(line).map_err(|e| wrong(&e.to_string()))?;
        let text = |name: &str| object[name].as_str().map(str::to_owned);
        let number = |name: &str| object[name].as_f64();
        let at = object["concurrency"].as_u64().map_or_else(String::new, |tasks| format!(", {tasks} at once"));
        let store = text("store").unwrap_or_else(|| "executor".to_owned());
        let case = text("case").ok_or_else(|| wrong("no `case`"))?;
        let unit = text("unit").ok_or_else(|| wrong("no `unit`"))?;
        let value = number("value").ok_or_else(|| wrong("no `value`"))?;
        Ok(Self {
            name: format!("{store} {case}{at}"),
            unit,
            value,
            floor: number("floor"),
            ratio: number("ratio"),
            goal: text("goal"),
            met: object["met"].as_bool(),
        })
    }
}

/// Formats a figure with as many digits as are reliable.
pub(crate) fn rounded(figure: f64) -> String {
    match figure {
        _ if figure >= 100.0 => format!("{figure:.0}"),
        _ if figure >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

/// Returns the page of one bench with a new table.
pub(crate) fn with_table(page: &str, name: &str, figures: &[Figure]) -> Result<String, String> {
    let begin = format!("<!-- {name}: written by `cargo xtask bench {name} --write` -->\n");
    between(page, &begin, &table(figures), &format!("<!-- /{name} -->\n"))
}

/// Returns the page with this text between two lines.
pub(super) fn between(page: &str, begin: &str, text: &str, end: &str) -> Result<String, String> {
    let missing = || format!("the page has no lines `{}` and `{}`", begin.trim_end(), end.trim_end());
    let (before, rest) = page.split_once(begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

fn table(figures: &[Figure]) -> String {
    let mut table = String::from("| figure | value | floor | ratio | goal | met |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        let number = |figure: Option<f64>| figure.map_or_else(String::new, rounded);
        let goal = figure.goal.as_deref().unwrap_or_default();
        let met = figure.met.map_or("", |met| if met { "yes" } else { "**no**" });
        let (value, floor, ratio) = (rounded(figure.value), number(figure.floor), number(figure.ratio));
        table += &format!("| {} | {value} {} | {floor} | {ratio} | {goal} | {met} |\n", figure.name, figure.unit);
    }
    table
}
