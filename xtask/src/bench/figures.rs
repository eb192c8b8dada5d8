//! The output of the benches, which is one JSON object per line, and its table in `docs/benchmarks.md`.
use serde_json::Value;

/// A figure, with its floor if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// The goal, such as `<= 5`, and the share of it that the figure takes.
    pub(crate) goal: Option<(String, f64)>,
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
        let share = |goal: &str| match (goal.split_once(' ')?, number("ratio").unwrap_or(value)) {
            (("<=", limit), judged) => Some(judged / limit.parse::<f64>().ok()?),
            ((">=", limit), judged) => Some(limit.parse::<f64>().ok()? / judged),
            _ => None,
        };
        let goal = text("goal").map(|goal| match share(&goal) {
            Some(share) => Ok((goal, share)),
            None => Err(wrong("a `goal` is `<= 5` or `>= 0.9`")),
        });
        Ok(Self {
            name: format!("{store} {case}{at}"),
            unit,
            value,
            floor: number("floor"),
            ratio: number("ratio"),
            goal: goal.transpose()?,
            met: object["met"].as_bool(),
        })
    }

    /// Returns the value that is compared with the goal.
    pub(crate) fn judged(&self) -> f64 {
        self.ratio.unwrap_or(self.value)
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

/// Returns the page with a new table of one bench.
pub(crate) fn with_table(page: &str, name: &str, figures: &[Figure]) -> Result<String, String> {
    let begin = format!("<!-- {name}: written by `cargo xtask bench {name} --write` -->\n");
    let end = format!("<!-- /{name} -->\n");
    let missing = || format!("docs/benchmarks.md has no lines `{}` and `{}`", begin.trim_end(), end.trim_end());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{}{end}{after}", table(figures)))
}

fn table(figures: &[Figure]) -> String {
    let mut table = String::from("| figure | value | floor | ratio | goal | met |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        let number = |figure: Option<f64>| figure.map_or_else(String::new, rounded);
        let goal = figure.goal.as_ref().map_or("", |(goal, _)| goal);
        let met = figure.met.map_or("", |met| if met { "yes" } else { "**no**" });
        let (value, floor, ratio) = (rounded(figure.value), number(figure.floor), number(figure.ratio));
        table += &format!("| {} | {value} {} | {floor} | {ratio} | {goal} | {met} |\n", figure.name, figure.unit);
    }
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_figure_is_reported_with_the_reason() {
        for (line, why) in [
            ("warning: x", "expected value"),
            (r#"{"case":"fresh"}"#, "no `unit`"),
            (r#"{"case":"fresh","unit":"ns"}"#, "no `value`"),
            (r#"{"case":"fresh","unit":"ns","value":1,"goal":"5"}"#, "a `goal` is"),
        ] {
            let error = Figure::parse(line).unwrap_err();
            assert!(error.contains(why) && error.contains(line), "{error}");
        }
    }
}
